#include "box/watched_file.h"

#include <fcntl.h>
#include <unistd.h>

#include "base/text.h"
#include "base/try.h"
#include "codec/json.h"
#include "codec/object_reader.h"
#include "store/atomic_file.h"
#include "sys/file_sys.h"

namespace temenos::box {
namespace {

namespace json = boost::json;
using Found = AutoexecScan::Found;

constexpr char kFile[] = "watched";
// A scan is bounded (autoexec.cc): this is above what it can add up to.
constexpr std::size_t kMaxBytes = 256u << 20;
constexpr std::size_t kMaxItems = 1u << 20;

// Names are a hostile tree's bytes, so all of them are hex.
json::array to_array(const std::set<std::string>& names) {
  json::array out;
  for (const auto& name : names) out.emplace_back(hex_encode(name));
  return out;
}

Result<std::string> from_hex(const std::string& text, std::string_view field) {
  auto bytes = hex_decode(text);
  if (!bytes) return fail(Code::kInvalidArgument, std::string(field) + " is not hex");
  return *bytes;
}

Result<std::string> read_hex(ObjectReader& reader, const char* name) {
  return from_hex(TRY(reader.string(name)), reader.path(name));
}

Result<std::set<std::string>> read_names(ObjectReader& reader, const char* name) {
  std::set<std::string> out;
  const json::array* list = TRY(reader.optional_array(name, kMaxItems));
  if (list == nullptr) return out;
  for (const auto& item : *list) {
    out.insert(TRY(from_hex(TRY(string_at(item, reader.path(name))), reader.path(name))));
  }
  return out;
}

json::object to_object(const std::string& path, const Found& found) {
  return {{"path", hex_encode(path)},
          {"reason", hex_encode(found.reason)},
          {"symlink", found.symlink},
          {"target", hex_encode(found.link_target)},
          {"reported", found.only_reported},
          {"state", hex_encode(found.state)},
          {"named_by", hex_encode(found.named_by)}};
}

Result<std::pair<std::string, Found>> read_found(const json::value& value) {
  auto reader = TRY(ObjectReader::of(value, "found"));
  Found found;
  const std::string path = TRY(read_hex(reader, "path"));
  found.reason = TRY(read_hex(reader, "reason"));
  found.symlink = TRY(reader.optional_bool("symlink")).value_or(false);
  found.link_target = TRY(read_hex(reader, "target"));
  found.only_reported = TRY(reader.optional_bool("reported")).value_or(false);
  found.state = TRY(read_hex(reader, "state"));
  found.named_by = TRY(read_hex(reader, "named_by"));
  TRY(reader.finish());
  return std::pair(path, found);
}

Result<Watched> read_watched(const json::value& value) {
  auto reader = TRY(ObjectReader::of(value, "watched"));
  Watched watched;
  watched.source = TRY(read_hex(reader, "source"));
  AutoexecScan& scan = watched.before;
  scan.complete = TRY(reader.optional_bool("complete")).value_or(false);
  const json::array* found = TRY(reader.optional_array("found", kMaxItems));
  for (std::size_t i = 0; found != nullptr && i < found->size(); ++i) {
    scan.found.insert(TRY(read_found((*found)[i])));
  }
  scan.git_directories = TRY(read_names(reader, "git_directories"));
  scan.worktrees = TRY(read_names(reader, "worktrees"));
  scan.closed = TRY(read_names(reader, "closed"));
  scan.sha256 = TRY(read_names(reader, "sha256"));
  for (const auto& text : TRY(read_names(reader, "trouble"))) scan.trouble.push_back(text);
  TRY(reader.finish());
  return watched;
}

}  // namespace

std::string watched_to_json(const std::vector<WatchedBind>& binds) {
  json::array out;
  for (const auto& bind : binds) {
    const AutoexecScan& scan = bind.before;
    json::array found;
    for (const auto& [path, one] : scan.found) found.push_back(to_object(path, one));
    out.push_back(json::object{{"source", hex_encode(bind.source)},
                               {"complete", scan.complete},
                               {"found", std::move(found)},
                               {"git_directories", to_array(scan.git_directories)},
                               {"worktrees", to_array(scan.worktrees)},
                               {"closed", to_array(scan.closed)},
                               {"sha256", to_array(scan.sha256)},
                               {"trouble", to_array({scan.trouble.begin(), scan.trouble.end()})}});
  }
  return serialize_json(out);
}

Result<std::vector<Watched>> watched_from_json(std::string_view text) {
  const auto document = TRY(parse_json(text, {.max_bytes = kMaxBytes}));
  if (!document.is_array()) return fail(Code::kInvalidArgument, "watched: no list");
  std::vector<Watched> out;
  for (const auto& value : document.get_array()) out.push_back(TRY(read_watched(value)));
  return out;
}

Result<void> keep_watched(const store::DataDir& dir, const std::vector<WatchedBind>& binds) {
  return store::write_atomically(dir.directory.get(), kFile, watched_to_json(binds));
}

BoxEnd look_at_watched(const store::DataDir& dir, const HostDirs& dirs) {
  BoxEnd end;
  const auto file = sys::open_beneath(dir.directory.get(), kFile, O_RDONLY);
  if (!file && file.error().code == Code::kNotFound) return end;
  auto read = [&]() -> Result<std::vector<Watched>> {
    if (!file) return tl::make_unexpected(file.error());
    return watched_from_json(TRY(sys::read_all(file->get(), kMaxBytes)));
  };
  const auto all = read();
  if (!all) {
    end.unseen.push_back("what the box may write could not be looked at (" +
                         all.error().to_string() + ")");
    return end;
  }
  for (const auto& watched : *all) {
    const auto directory = sys::open_canonical(watched.source);
    if (!directory) {
      end.unseen.push_back(escape(watched.source) + " could not be looked at (" +
                           directory.error().to_string() + ")");
      continue;
    }
    report_autoexec(directory->get(), watched.source, watched.before, dirs.libexec, end);
  }
  return end;
}

void forget_watched(const store::DataDir& dir) { unlinkat(dir.directory.get(), kFile, 0); }

}  // namespace temenos::box
