#include "keeper/launch_spec.h"

#include "base/text.h"
#include "base/try.h"
#include "codec/object_reader.h"
#include "policy/names.h"
#include "sys/file_sys.h"
#include "sys/process_sys.h"

namespace temenos::keeper {
namespace {

namespace json = boost::json;

constexpr std::size_t kMaxBinds = 200;  // SCM_RIGHTS takes 253 descriptors (unix(7))
constexpr std::size_t kMaxPaths = 4096;
constexpr std::size_t kMaxSpecBytes = 16u << 20;
constexpr std::int64_t kMaxNumber = std::int64_t{1} << 40;  // as a policy's
constexpr std::int64_t kMaxCpuThousandths = 8192 * 1000;    // as a policy's
constexpr std::size_t kFixedFds = 3;  // spec, data dir, client; and the listener of a durable one

// File names are bytes, JSON strings are not: paths below a directory that a box may write travel
// as hex.
json::array paths_to_json(const std::vector<std::string>& list) {
  json::array out;
  for (const auto& path : list) out.emplace_back(hex_encode(path));
  return out;
}

Result<std::string> path_from_json(const std::string& hex, const std::string& field) {
  auto path = hex_decode(hex);
  if (!path) return fail(Code::kInvalidArgument, field + " is not hex");
  return *path;
}

Result<std::vector<std::string>> read_paths(ObjectReader& reader, const char* name) {
  std::vector<std::string> out;
  const json::array* list = TRY(reader.optional_array(name, kMaxPaths));
  if (list == nullptr) return out;
  for (const auto& item : *list) {
    out.push_back(TRY(path_from_json(TRY(string_at(item, reader.path(name))), reader.path(name))));
  }
  return out;
}

Result<bool> read_bool(ObjectReader& reader, const char* name) {
  return TRY(reader.optional_bool(name)).value_or(false);
}

Result<std::int64_t> read_number(ObjectReader& reader, const char* name, std::int64_t max,
                                 std::int64_t min = 1) {
  const std::int64_t number = TRY(reader.integer(name));
  if (number < min || number > max)
    return fail(Code::kInvalidArgument, reader.path(name) + " is out of range");
  return number;
}

Result<BindSpec> read_bind(const json::value& value) {
  auto reader = TRY(ObjectReader::of(value, "binds"));
  BindSpec bind;
  bind.source = TRY(path_from_json(TRY(reader.string("source")), "source"));
  bind.target = TRY(path_from_json(TRY(reader.string("target")), "target"));
  bind.writable = TRY(read_bool(reader, "writable"));
  bind.hidden = TRY(read_paths(reader, "hidden"));
  bind.protected_paths = TRY(read_paths(reader, "protected"));
  TRY(reader.finish());
  return bind;
}

Result<MemorySpec> read_memory(const json::value& value) {
  auto reader = TRY(ObjectReader::of(value, "memory"));
  MemorySpec memory;
  memory.target = TRY(reader.string("target"));
  memory.size_mb = static_cast<std::uint64_t>(TRY(read_number(reader, "size_mb", 1 << 20)));
  TRY(reader.finish());
  return memory;
}

json::object limits_to_json(const LimitSpec& limits) {
  return {{"driver", limits.driver},
          {"group", limits.group},
          {"required", limits.required},
          {"memory_mb", limits.memory_mb},
          {"cpu_thousandths", limits.cpu_thousandths},
          {"cpu_seconds", limits.cpu_seconds},
          {"guest_tasks", limits.guest_tasks},
          {"host_tasks", limits.host_tasks},
          {"disk_mb", limits.disk_mb},
          {"note", limits.note}};
}

Result<LimitSpec> read_limits(const json::value& value) {
  auto reader = TRY(ObjectReader::of(value, "limits"));
  LimitSpec limits;
  limits.driver = TRY(reader.string("driver"));
  limits.group = TRY(reader.string("group"));
  limits.required = TRY(read_bool(reader, "required"));
  limits.memory_mb = TRY(read_number(reader, "memory_mb", kMaxNumber, 0));
  limits.cpu_thousandths = TRY(read_number(reader, "cpu_thousandths", kMaxCpuThousandths, 0));
  limits.cpu_seconds = TRY(read_number(reader, "cpu_seconds", kMaxNumber, 0));
  limits.guest_tasks = TRY(read_number(reader, "guest_tasks", kMaxNumber, 0));
  limits.host_tasks = TRY(read_number(reader, "host_tasks", kMaxNumber, 0));
  limits.disk_mb = TRY(read_number(reader, "disk_mb", kMaxNumber, 0));
  limits.note = TRY(reader.string("note"));
  TRY(reader.finish());
  return limits;
}

}  // namespace

std::string to_json(const LaunchSpec& spec) {
  json::array binds;
  for (const auto& bind : spec.binds) {
    binds.push_back(json::object{{"source", hex_encode(bind.source)},
                                 {"target", hex_encode(bind.target)},
                                 {"writable", bind.writable},
                                 {"hidden", paths_to_json(bind.hidden)},
                                 {"protected", paths_to_json(bind.protected_paths)}});
  }
  json::array memory;
  for (const auto& m : spec.memory) {
    memory.push_back(json::object{{"target", m.target}, {"size_mb", m.size_mb}});
  }
  return serialize_json(json::object{{"hostname", spec.hostname},
                                     {"platform", spec.platform},
                                     {"network", enum_name(spec.network)},
                                     {"proxy", spec.proxy},
                                     {"runsc", spec.runsc},
                                     {"init", spec.init},
                                     {"session", spec.session},
                                     {"scope", spec.scope},
                                     {"netsetup", spec.netsetup},
                                     {"dialer", spec.dialer},
                                     {"front", spec.front},
                                     {"allow_hosts", paths_to_json(spec.allow_hosts)},
                                     {"data_dir", spec.data_dir},
                                     {"durable", spec.durable},
                                     {"scratch", enum_name(spec.scratch)},
                                     {"scratch_mb", spec.scratch_mb},
                                     {"binds", binds},
                                     {"memory", memory},
                                     {"limits", limits_to_json(spec.limits)},
                                     {"start_timeout_s", spec.start_timeout_s},
                                     {"ttl_s", spec.ttl_s},
                                     {"idle_s", spec.idle_s}});
}

Result<LaunchSpec> launch_spec_from_json(std::string_view text) {
  const auto document = TRY(parse_json(text, {.max_bytes = kMaxSpecBytes}));
  auto reader = TRY(ObjectReader::of(document, ""));
  LaunchSpec spec;
  spec.hostname = TRY(reader.string("hostname"));
  spec.platform = TRY(reader.string("platform"));
  spec.network = TRY(parse_enum<NetworkMode>(TRY(reader.string("network")), "network"));
  if (spec.network == NetworkMode::kNat) {
    return fail(Code::kNotBuilt, "the network mode 'nat' is not built yet");
  }
  spec.proxy = TRY(read_bool(reader, "proxy"));
  if (spec.proxy && spec.network != NetworkMode::kHost) {
    return fail(Code::kInvalidArgument, "a proxy goes with the host's network only");
  }
  spec.runsc = TRY(reader.string("runsc"));
  spec.init = TRY(reader.string("init"));
  spec.session = TRY(reader.string("session"));
  spec.scope = TRY(reader.string("scope"));
  spec.netsetup = TRY(reader.string("netsetup"));
  spec.dialer = TRY(reader.string("dialer"));
  spec.front = TRY(reader.string("front"));
  spec.allow_hosts = TRY(read_paths(reader, "allow_hosts"));
  spec.data_dir = TRY(reader.string("data_dir"));
  spec.durable = TRY(read_bool(reader, "durable"));
  spec.scratch = TRY(parse_enum<Scratch>(TRY(reader.string("scratch")), "scratch"));
  spec.scratch_mb = TRY(read_number(reader, "scratch_mb", kMaxNumber));
  const json::array* binds = TRY(reader.optional_array("binds", kMaxBinds));
  if (binds != nullptr) {
    for (const auto& value : *binds) spec.binds.push_back(TRY(read_bind(value)));
  }
  const json::array* memory = TRY(reader.optional_array("memory", kMaxBinds));
  if (memory != nullptr) {
    for (const auto& value : *memory) spec.memory.push_back(TRY(read_memory(value)));
  }
  const json::value* limits = TRY(reader.optional_object("limits"));
  if (limits == nullptr) return fail(Code::kInvalidArgument, "limits are missing");
  spec.limits = TRY(read_limits(*limits));
  spec.start_timeout_s = static_cast<unsigned>(TRY(read_number(reader, "start_timeout_s", 3600)));
  spec.ttl_s = TRY(read_number(reader, "ttl_s", kMaxNumber, 0));
  spec.idle_s = TRY(read_number(reader, "idle_s", kMaxNumber, 0));
  TRY(reader.finish());
  return spec;
}

Result<void> send_launch(int socket, const Launch& launch) {
  const std::string text = to_json(launch.spec);
  if (text.size() > kMaxSpecBytes || launch.sources.size() > kMaxBinds) {
    return fail(Code::kExhausted, "the box has too many mounts or protected paths",
                "mount fewer directories");
  }
  const UniqueFd spec = TRY(sys::sealed_memory("temenos-launch", text));
  std::vector<int> fds{spec.get(), launch.data_dir.get(), launch.client.get()};
  if (launch.spec.durable) fds.push_back(launch.listener.get());
  for (const auto& source : launch.sources) fds.push_back(source.get());
  return sys::send_with_fds(socket, "launch", fds);
}

Result<Launch> receive_launch(int socket) {
  auto received = TRY(sys::receive_with_fds(socket, 16, kFixedFds + 1 + kMaxBinds));
  if (received.bytes != "launch" || received.fds.size() < kFixedFds) {
    return fail(Code::kProtocol, "no launch message");
  }
  Launch launch;
  launch.spec =
      TRY(launch_spec_from_json(TRY(sys::read_all(received.fds[0].get(), kMaxSpecBytes))));
  launch.data_dir = std::move(received.fds[1]);
  launch.client = std::move(received.fds[2]);
  std::size_t next = kFixedFds;
  if (launch.spec.durable && next < received.fds.size()) {
    launch.listener = std::move(received.fds[next++]);
  }
  for (std::size_t i = next; i < received.fds.size(); ++i) {
    launch.sources.push_back(std::move(received.fds[i]));
  }
  if (launch.sources.size() != launch.spec.binds.size()) {
    return fail(Code::kProtocol, "a launch message with the wrong number of mounts");
  }
  return launch;
}

}  // namespace temenos::keeper
