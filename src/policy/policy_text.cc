// A policy as JSON and TOML: one schema, one value tree, two notations. Ranges and dangers are not
// judged here but in check.cc, for texts and builders alike.
#include <cstdlib>

#include "base/try.h"
#include "codec/field_path.h"
#include "codec/toml.h"
#include "policy/names.h"

namespace temenos {
namespace {

namespace json = boost::json;

// Far above what check.cc admits, so that its message, which says why, comes first.
constexpr std::size_t kMaxList = 1 << 16;

struct LimitField {
  std::string_view name;
  std::optional<std::int64_t> Limits::* member;
};
constexpr LimitField kLimitFields[] = {{"memory_mb", &Limits::memory_mb},
                                       {"cpu_seconds", &Limits::cpu_seconds},
                                       {"pids", &Limits::pids},
                                       {"disk_mb", &Limits::disk_mb},
                                       {"output_mb", &Limits::output_mb},
                                       {"ttl_seconds", &Limits::ttl_seconds},
                                       {"idle_seconds", &Limits::idle_seconds}};

template <typename E>
Result<void> read_enum(ObjectReader& in, std::string_view name, E& out) {
  const auto text = TRY(in.optional_string(name));
  if (text) out = TRY(parse_enum<E>(*text, in.path(name)));
  return {};
}

// Calls `read(value, path)` for each element of the list `name`.
template <typename F>
Result<void> for_each(ObjectReader& in, std::string_view name, F read) {
  const json::array* array = TRY(in.optional_array(name, kMaxList));
  if (!array) return {};
  for (std::size_t i = 0; i < array->size(); ++i) {
    TRY(read((*array)[i], field_path(in.path(name), i)));
  }
  return {};
}

// An empty path in a text is a slip; what may be left out is left out.
Result<std::string> optional_path(ObjectReader& in, std::string_view name) {
  const auto text = TRY(in.optional_string(name));
  if (text && text->empty()) {
    return bad_field(in.path(name), "an absolute path", "",
                     "write the path, or leave the field out");
  }
  return text.value_or("");
}

Result<Mount> read_mount(const json::value& value, const std::string& path) {
  ObjectReader in = TRY(ObjectReader::of(value, path));
  Mount out;
  out.source = TRY(in.string("source"));
  out.target = TRY(optional_path(in, "target"));
  TRY(read_enum(in, "access", out.access));
  TRY(in.finish());
  return out;
}

Result<DiskVolume> read_disk(const json::value& value, const std::string& path) {
  ObjectReader in = TRY(ObjectReader::of(value, path));
  DiskVolume out;
  out.host_dir = TRY(in.string("host_dir"));
  out.create = TRY(in.optional_bool("create")).value_or(false);
  out.allowed_root = TRY(optional_path(in, "allowed_root"));
  TRY(in.finish());
  return out;
}

Result<MemoryVolume> read_memory(const json::value& value, const std::string& path) {
  ObjectReader in = TRY(ObjectReader::of(value, path));
  MemoryVolume out{.size_mb = TRY(in.integer("size_mb"))};
  TRY(in.finish());
  return out;
}

Result<VolumeMount> read_volume(const json::value& value, const std::string& path) {
  ObjectReader in = TRY(ObjectReader::of(value, path));
  VolumeMount out;
  out.target = TRY(in.string("target"));
  TRY(read_enum(in, "access", out.access));
  const json::value* disk = TRY(in.optional_object("disk"));
  const json::value* memory = TRY(in.optional_object("memory"));
  TRY(in.finish());
  if ((disk != nullptr) == (memory != nullptr)) {
    return fail(
        Code::kInvalidArgument,
        path + ": expected either \"disk\" or \"memory\", got " + (disk ? "both" : "neither"),
        "say where the volume lives");
  }
  if (disk) {
    out.volume = TRY(read_disk(*disk, in.path("disk")));
  } else {
    out.volume = TRY(read_memory(*memory, in.path("memory")));
  }
  return out;
}

Result<SecretFile> read_secret(const json::value& value, const std::string& path) {
  ObjectReader in = TRY(ObjectReader::of(value, path));
  SecretFile out;
  out.source = TRY(in.string("source"));
  out.target = TRY(in.string("target"));
  TRY(in.finish());
  return out;
}

Result<void> read_env(ObjectReader& top, std::map<std::string, std::string>& out) {
  const json::value* value = TRY(top.optional_object("env"));
  if (!value) return {};
  for (const auto& member : value->get_object()) {
    const std::string name(member.key());
    out[name] = TRY(string_at(member.value(), field_path(top.path("env"), name)));
  }
  return {};
}

Result<void> read_limits(ObjectReader& top, Limits& out) {
  const json::value* value = TRY(top.optional_object("limits"));
  if (!value) return {};
  ObjectReader in = TRY(ObjectReader::of(*value, top.path("limits")));
  for (const LimitField& field : kLimitFields) {
    out.*field.member = TRY(in.optional_int(field.name));
  }
  out.cpus = TRY(in.optional_number("cpus"));
  return in.finish();
}

Result<void> read_lists(ObjectReader& in, PolicyFields& f) {
  TRY(for_each(in, "allow_hosts",
               [&](const json::value& value, const std::string& path) -> Result<void> {
                 auto rule = HostRule::parse(TRY(string_at(value, path)));
                 if (!rule)
                   return tl::unexpected<Error>(std::move(rule).error().with_context(path));
                 f.allow_hosts.push_back(std::move(*rule));
                 return {};
               }));
  TRY(for_each(in, "mounts",
               [&](const json::value& value, const std::string& path) -> Result<void> {
                 f.mounts.push_back(TRY(read_mount(value, path)));
                 return {};
               }));
  TRY(for_each(in, "volumes",
               [&](const json::value& value, const std::string& path) -> Result<void> {
                 f.volumes.push_back(TRY(read_volume(value, path)));
                 return {};
               }));
  TRY(for_each(in, "secret_files",
               [&](const json::value& value, const std::string& path) -> Result<void> {
                 f.secret_files.push_back(TRY(read_secret(value, path)));
                 return {};
               }));
  return for_each(in, "allow_danger",
                  [&](const json::value& value, const std::string& path) -> Result<void> {
                    const std::string word = TRY(string_at(value, path));
                    f.allowed.*TRY(parse_enum<Danger>(word, path)) = true;
                    return {};
                  });
}

Result<PolicyFields> read_policy(const json::value& value) {
  ObjectReader in = TRY(ObjectReader::of(value, ""));
  PolicyFields f;
  TRY(read_enum(in, "network", f.network));
  TRY(read_lists(in, f));
  TRY(read_env(in, f.env));
  TRY(read_limits(in, f.limits));
  TRY(read_enum(in, "limits_mode", f.limits_mode));
  TRY(read_enum(in, "enforcement", f.enforcement));
  TRY(read_enum(in, "scratch", f.scratch));
  TRY(read_enum(in, "project", f.project));
  TRY(read_enum(in, "platform", f.platform));
  const auto base = TRY(in.optional_string("base"));
  if (base) f.base = *base;
  TRY(in.finish());
  return f;
}

json::object volume_tree(const VolumeMount& volume) {
  json::object out{{"target", volume.target}, {"access", enum_name(volume.access)}};
  if (const auto* memory = std::get_if<MemoryVolume>(&volume.volume)) {
    out["memory"] = json::object{{"size_mb", memory->size_mb}};
    return out;
  }
  const auto& disk = std::get<DiskVolume>(volume.volume);
  json::object tree{{"host_dir", disk.host_dir}, {"create", disk.create}};
  if (!disk.allowed_root.empty()) tree["allowed_root"] = disk.allowed_root;
  out["disk"] = std::move(tree);
  return out;
}

json::object limits_tree(const Limits& limits) {
  json::object out;
  for (const LimitField& field : kLimitFields) {
    if (limits.*field.member) out[field.name] = *(limits.*field.member);
  }
  if (limits.cpus) out["cpus"] = *limits.cpus;
  return out;
}

json::object policy_tree(const PolicyFields& f) {
  json::object out{{"network", enum_name(f.network)},
                   {"limits_mode", enum_name(f.limits_mode)},
                   {"enforcement", enum_name(f.enforcement)},
                   {"scratch", enum_name(f.scratch)},
                   {"project", enum_name(f.project)},
                   {"platform", enum_name(f.platform)},
                   {"base", f.base}};
  json::array hosts, mounts, volumes, secrets, dangers;
  for (const HostRule& rule : f.allow_hosts) hosts.emplace_back(rule.to_string());
  for (const Mount& mount : f.mounts) {
    mounts.push_back(json::object{
        {"source", mount.source}, {"target", mount.target}, {"access", enum_name(mount.access)}});
  }
  for (const VolumeMount& volume : f.volumes) volumes.push_back(volume_tree(volume));
  for (const SecretFile& secret : f.secret_files) {
    secrets.push_back(json::object{{"source", secret.source}, {"target", secret.target}});
  }
  for (const auto& row : enum_names<Danger>) {
    if (f.allowed.*row.value) dangers.emplace_back(row.name);
  }
  json::object env;
  for (const auto& [name, value] : f.env) env[name] = value;
  out["allow_hosts"] = std::move(hosts);
  out["allow_danger"] = std::move(dangers);
  out["env"] = std::move(env);
  out["limits"] = limits_tree(f.limits);
  out["mounts"] = std::move(mounts);
  out["volumes"] = std::move(volumes);
  out["secret_files"] = std::move(secrets);
  return out;
}

Error in_policy(Error error) { return std::move(error).with_context("policy"); }

}  // namespace

Result<Policy> Policy::from_json(std::string_view text) {
  return parse_json(text).and_then(read_policy).and_then(checked).map_error(in_policy);
}

Result<Policy> Policy::from_toml(std::string_view text) {
  return parse_toml(text).and_then(read_policy).and_then(checked).map_error(in_policy);
}

std::string Policy::to_json() const { return serialize_json(policy_tree(fields_)); }

std::string Policy::to_toml() const {
  auto text = serialize_toml(policy_tree(fields_));
  if (!text) std::abort();  // check.cc admits only what TOML can say
  return std::move(*text);
}

}  // namespace temenos
