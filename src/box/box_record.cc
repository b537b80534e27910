#include "box/box_record.h"

#include <fcntl.h>

#include <algorithm>
#include <boost/uuid/name_generator_sha1.hpp>
#include <boost/uuid/uuid.hpp>

#include "base/text.h"
#include "base/try.h"
#include "codec/json.h"
#include "codec/object_reader.h"
#include "store/atomic_file.h"
#include "sys/file_sys.h"

namespace temenos::box {
namespace {

constexpr char kRecord[] = "temenos-box.json";
constexpr std::size_t kMaxRecord = 4u << 20;
constexpr std::size_t kMaxName = 63;
constexpr std::int64_t kVersion = 1;
// Of these ids and of nothing else.
constexpr boost::uuids::uuid kNamespace = {{0x8f, 0x1c, 0x6b, 0x52, 0x3d, 0x0a, 0x4e, 0x7b, 0x9a,
                                            0x64, 0x05, 0xd1, 0xe2, 0x77, 0xc9, 0x18}};

bool is_alphanumeric(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

}  // namespace

Result<void> check_name(const std::string& name) {
  const bool good = !name.empty() && name.size() <= kMaxName && is_alphanumeric(name[0]) &&
                    std::all_of(name.begin(), name.end(), [](char c) {
                      return is_alphanumeric(c) || c == '.' || c == '_' || c == '-';
                    });
  if (good) return {};
  return fail(Code::kInvalidArgument, "'" + escape(name.substr(0, 100)) + "' is no name for a box",
              "use 1 to 63 letters, digits, '.', '_' and '-', the first a letter or a digit");
}

std::string id_of(const BoxName& name) {
  boost::uuids::name_generator_sha1 generate(kNamespace);
  // A name has no NUL, so no two pairs give the same bytes.
  const auto id = generate(name.scope + '\0' + name.name);
  return hex_encode({reinterpret_cast<const char*>(id.data), sizeof id.data});
}

std::string to_json(const BoxRecord& record) {
  // The policy is a text in the text: it has a parser of its own, and one form.
  return serialize_json(boost::json::object{{"version", kVersion},
                                            {"name", record.name.name},
                                            {"scope", record.name.scope},
                                            {"project", record.project_dir},
                                            {"created", record.created},
                                            {"policy", record.policy.to_json()}});
}

Result<BoxRecord> box_record_from_json(std::string_view text) {
  const auto document = TRY(parse_json(text, {.max_bytes = kMaxRecord}));
  auto reader = TRY(ObjectReader::of(document, ""));
  const auto version = TRY(reader.integer("version"));
  if (version != kVersion) {
    return fail(Code::kUnsupported, "the box was made by another version of temenos",
                "use that version, or remove the box");
  }
  BoxName name{TRY(reader.string("scope")), TRY(reader.string("name"))};
  TRY(check_name(name.name));
  std::string project = TRY(reader.string("project"));
  std::string created = TRY(reader.string("created"));
  Policy policy = TRY(Policy::from_json(TRY(reader.string("policy"))));
  TRY(reader.finish());
  return BoxRecord{std::move(name), std::move(project), std::move(created), std::move(policy)};
}

Result<BoxRecord> read_record(int directory) {
  const UniqueFd file = TRY(sys::open_beneath(directory, kRecord, O_RDONLY));
  return box_record_from_json(TRY(sys::read_all(file.get(), kMaxRecord)));
}

Result<void> write_record(int directory, const BoxRecord& record) {
  return store::write_atomically(directory, kRecord, to_json(record));
}

}  // namespace temenos::box
