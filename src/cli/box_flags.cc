#include "cli/box_flags.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <climits>

#include "base/text.h"
#include "base/try.h"
#include "box/host_dirs.h"
#include "box/project.h"
#include "codec/object_reader.h"
#include "policy/paths.h"
#include "sys/file_sys.h"
#include "temenos/allow/autoexec.h"
#include "temenos/allow/cooperative_enforcement.h"
#include "temenos/allow/home_bind.h"
#include "temenos/allow/host_network.h"
#include "temenos/allow/shared_write.h"
#include "temenos/policy_builder.h"

namespace temenos::cli {
namespace {

constexpr char kGroup[] = "Box";
constexpr std::size_t kMaxPolicyFile = 1u << 20;

tl::unexpected<Error> usage(std::string what, std::string hint) {
  return fail(Code::kUsage, std::move(what), std::move(hint));
}

Result<std::string> working_directory() {
  char path[PATH_MAX];
  if (getcwd(path, sizeof path) == nullptr) {
    return fail_errno(errno, "cannot tell the working directory",
                      "change to a directory that exists");
  }
  return std::string(path);
}

Result<std::string> absolute(const std::string& path) {
  if (path.empty()) return usage("an empty path", "name a file or directory");
  const std::string whole = path[0] == '/' ? path : TRY(working_directory()) + "/" + path;
  std::vector<std::string> parts;
  for (const auto& part : split(whole, '/')) {
    if (part.empty() || part == ".") continue;
    if (part == "..") {
      if (!parts.empty()) parts.pop_back();
    } else {
      parts.push_back(part);
    }
  }
  std::string out;
  for (const auto& part : parts) out += "/" + part;
  return out.empty() ? "/" : out;
}

template <typename T>
Result<T> word(const std::string& flag, const std::string& value,
               std::initializer_list<std::pair<const char*, T>> words) {
  std::string list;
  for (const auto& [name, meaning] : words) {
    if (value == name) return meaning;
    list += (list.empty() ? "" : ", ") + std::string(name);
  }
  return usage(flag + ": '" + escape(value) + "' is not one of " + list, "use one of them");
}

Result<VolumeMount> parse_volume(const std::string& text) {
  const auto parts = split(text, ':');
  if (parts.size() < 2 || parts.size() > 3) {
    return usage("--volume '" + escape(text) + "' is not HOST:TARGET[:ro|rw]",
                 "write it like ./data:/data:ro");
  }
  VolumeMount volume;
  volume.target = parts[1];
  const std::string mode = parts.size() == 3 ? parts[2] : "rw";
  volume.access =
      TRY(word<Access>("--volume", mode, {{"ro", Access::kRead}, {"rw", Access::kWrite}}));
  volume.volume = DiskVolume{TRY(absolute(parts[0])), false, ""};
  return volume;
}

Result<void> add_network(const BoxFlags& flags, Policy::Builder& builder) {
  if (flags.no_net && !flags.net.empty() && flags.net != "none") {
    return usage("--no-net and --net " + escape(flags.net) + " contradict each other", "keep one");
  }
  if (flags.no_net && !flags.allow_host.empty()) {
    return usage("--no-net and --allow-host contradict each other", "keep one");
  }
  if (flags.no_net) {
    builder.network(NetworkMode::kNone);
  } else if (!flags.net.empty()) {
    const auto mode = TRY(word<NetworkMode>("--net", flags.net,
                                            {{"none", NetworkMode::kNone},
                                             {"filtered", NetworkMode::kFiltered},
                                             {"nat", NetworkMode::kNat},
                                             {"host", NetworkMode::kHost}}));
    if (mode == NetworkMode::kHost) {
      builder.network_host(allow::HostNetwork{});
    } else {
      builder.network(mode);
    }
    if (mode != NetworkMode::kFiltered && !flags.allow_host.empty()) {
      return usage("--allow-host goes with --net filtered only", "keep one");
    }
  }
  for (const auto& entry : flags.allow_host) builder.allow_host(entry);
  return {};
}

Result<void> add_mounts(const BoxFlags& flags, Policy::Builder& builder) {
  for (const auto& path : flags.read) builder.read(TRY(absolute(path)));
  for (const auto& path : flags.write) builder.write(TRY(absolute(path)));
  for (const auto& text : flags.volume) builder.volume(TRY(parse_volume(text)));
  for (const auto& text : flags.secret_file) {
    const auto colon = text.rfind(':');
    if (colon == std::string::npos) {
      return usage("--secret-file '" + escape(text) + "' is not HOST:TARGET",
                   "write it like ./token:/run/token");
    }
    builder.secret_file(TRY(absolute(text.substr(0, colon))), text.substr(colon + 1));
  }
  return {};
}

Result<void> add_dangers(const BoxFlags& flags, Policy::Builder& builder) {
  enum class Danger { kHomeBind, kSharedWrite, kAutoexec };
  for (const auto& name : flags.allow_danger) {
    switch (TRY(word<Danger>("--allow-danger", name,
                             {{"home-bind", Danger::kHomeBind},
                              {"shared-write", Danger::kSharedWrite},
                              {"autoexec", Danger::kAutoexec}}))) {
      case Danger::kHomeBind:
        builder.allow_home_bind(allow::HomeBind{});
        break;
      case Danger::kSharedWrite:
        builder.allow_shared_write(allow::SharedWrite{});
        break;
      case Danger::kAutoexec:
        builder.allow_autoexec(allow::Autoexec{});
        break;
    }
  }
  return {};
}

Result<void> add_modes(const BoxFlags& flags, Policy::Builder& builder) {
  if (!flags.limits.empty()) {
    builder.limits_mode(TRY(word<LimitsMode>(
        "--limits", flags.limits,
        {{"required", LimitsMode::kRequired}, {"best-effort", LimitsMode::kBestEffort}})));
  }
  if (!flags.enforcement.empty() && TRY(word<bool>("--enforcement", flags.enforcement,
                                                   {{"required", false}, {"cooperative", true}}))) {
    if (flags.no_net || (!flags.net.empty() && flags.net != "filtered")) {
      return usage("--enforcement cooperative goes with --net filtered only", "keep one");
    }
    builder.enforcement_cooperative(allow::CooperativeEnforcement{});
  }
  if (!flags.scratch.empty()) {
    builder.scratch(TRY(word<Scratch>(
        "--scratch", flags.scratch,
        {{"disk", Scratch::kDisk}, {"memory", Scratch::kMemory}, {"runsc", Scratch::kRunsc}})));
  }
  if (flags.ephemeral && flags.review) {
    return usage("--ephemeral and --review contradict each other", "keep one");
  }
  if (flags.ephemeral) builder.project(ProjectAccess::kRead);
  if (flags.review) builder.project(ProjectAccess::kReview);
  if (!flags.platform.empty()) {
    builder.platform(TRY(word<Platform>("--platform", flags.platform,
                                        {{"auto", Platform::kAuto},
                                         {"systrap", Platform::kSystrap},
                                         {"ptrace", Platform::kPtrace},
                                         {"kvm", Platform::kKvm}})));
  }
  if (!flags.image.empty()) builder.base(flags.image);
  return {};
}

// A box writes in the project; what the next command obeys must not lie there.
Result<void> refuse_policy_in_repository(const std::string& path) {
  const std::string written = TRY(absolute(path));
  for (const std::string& place : {written, sys::resolve(written).value_or(written)}) {
    const std::string repository =
        box::find_project(place.substr(0, place.rfind('/')), box::home_directory());
    if (repository.empty()) continue;
    return fail(
        Code::kPolicyViolation,
        escape(path) + " lies in the repository " + escape(repository) + ", where boxes write",
        "keep policies outside of repositories, as ~/.config/NAME.toml");
  }
  return {};
}

// Nor in what the policy itself lets the box write.
Result<void> refuse_policy_in_own_mount(const std::string& path, const Policy& policy) {
  std::vector<std::string> writable;
  for (const auto& mount : policy->mounts) {
    if (mount.access == Access::kWrite) writable.push_back(mount.source);
  }
  for (const auto& volume : policy->volumes) {
    const auto* disk = std::get_if<DiskVolume>(&volume.volume);
    if (disk != nullptr && volume.access == Access::kWrite) writable.push_back(disk->host_dir);
  }
  const std::string real = TRY(sys::resolve(TRY(absolute(path))));
  for (const auto& source : writable) {
    if (!is_at_or_below(real, sys::resolve(source).value_or(source))) continue;
    return fail(
        Code::kPolicyViolation,
        escape(path) + " lies in " + escape(source) + ", which this policy lets the box write",
        "keep it somewhere else");
  }
  return {};
}

Result<Policy> policy_from_file(const std::string& path) {
  TRY(refuse_policy_in_repository(path));
  auto text = sys::read_path(path, kMaxPolicyFile);
  if (!text) {
    return tl::make_unexpected(
        std::move(text).error().with_context("--policy").with_hint("give a file that can be read"));
  }
  auto policy = path.ends_with(".toml") ? Policy::from_toml(*text) : Policy::from_json(*text);
  if (!policy) return tl::make_unexpected(std::move(policy).error().with_context(escape(path)));
  TRY(refuse_policy_in_own_mount(path, *policy));
  return policy;
}

// The builder speaks of the fields of a policy file; here they were flags.
Result<Policy> in_words_of_flags(Result<Policy> policy) {
  if (policy) return policy;
  Error error = std::move(policy).error();
  if (error.hint.find("home-bind") != std::string::npos) {
    error.hint = "bind a directory inside it, or name the danger: --allow-danger home-bind";
  } else if (error.hint.find("choose a target") != std::string::npos) {
    error.hint += " (--volume HOST:TARGET)";
  }
  return tl::make_unexpected(std::move(error));
}

}  // namespace

void add_box_flags(CLI::App& command, BoxFlags& flags) {
  auto option = [&command](const char* name, auto& value, const char* help, const char* type) {
    return command.add_option(name, value, help)->group(kGroup)->type_name(type);
  };
  auto flag = [&command](const char* name, bool& value, const char* help) {
    return command.add_flag(name, value, help)->group(kGroup);
  };
  option("--net", flags.net, "Network: filtered (default: what --allow-host names), none or host",
         "MODE");
  flag("--no-net", flags.no_net, "No network: the same as --net none");
  option("--allow-host", flags.allow_host,
         "Let the box reach HOST[:PORT], *.HOST, an address or @preset", "ENTRY")
      ->allow_extra_args(false);
  option("--read", flags.read, "Mount PATH read-only at its own path; again for more", "PATH")
      ->allow_extra_args(false);
  option("--write", flags.write, "Mount PATH writable at its own path; again for more", "PATH")
      ->allow_extra_args(false);
  option("--volume", flags.volume,
         "Mount a host directory at TARGET, writable unless :ro; again for more",
         "HOST:TARGET[:ro|rw]")
      ->allow_extra_args(false);
  option("--secret-file", flags.secret_file, "Mount a file read-only at TARGET; again for more",
         "HOST:TARGET")
      ->allow_extra_args(false);
  flag("--ephemeral", flags.ephemeral, "The project is read-only");
  flag("--review", flags.review, "The project is copy-on-write (not built yet)");
  flag("--no-project", flags.no_project, "The project is not mounted");
  option("--image", flags.image, "Base image instead of the host's /usr (not built yet)", "NAME");
  option("--memory", flags.memory, "Memory of the box, gVisor's own included; over it the box ends",
         "MB");
  option("--cpus", flags.cpus, "CPU quota in cores, as 0.5", "N");
  option("--cpu", flags.cpu, "End the box when it has used so much CPU time", "SECONDS");
  option("--pids", flags.pids, "Processes and threads in the box", "N");
  option("--disk", flags.disk, "What the box may write, on disk or in --scratch memory", "MB");
  option("--output", flags.output, "Cap on a command's output", "MB");
  option("--ttl", flags.ttl, "End the box so long after its start", "SECONDS");
  option("--idle", flags.idle, "End the box after so long without a command", "SECONDS");
  option(
      "--scratch", flags.scratch,
      "Where the box writes: disk (default), memory, or runsc (gVisor's own memory); of the last "
      "two nothing survives",
      "WHERE");
  option("--limits", flags.limits,
         "best-effort (default: warn where this host keeps less), or required", "MODE");
  option("--enforcement", flags.enforcement,
         "Of a filtered network: required (default), or cooperative (not a boundary: a proxy that "
         "programs are asked to use)",
         "MODE");
  option("--platform", flags.platform, "gVisor's platform: auto (default), systrap, ptrace, kvm",
         "NAME");
  option("--env", flags.env, "Set a variable in the box; again for more", "K=V")
      ->allow_extra_args(false);
  option("--allow-danger", flags.allow_danger,
         "Name a danger to allow it: home-bind, shared-write, autoexec", "NAME")
      ->allow_extra_args(false);
  option("--policy", flags.policy_file,
         "The box's policy from a JSON or TOML file instead of flags", "FILE");
}

Result<Policy> policy_from_flags(const BoxFlags& flags) {
  if (!flags.policy_file.empty()) {
    // A flag without effect would leave the user with less protection than was asked for.
    BoxFlags alone;
    alone.policy_file = flags.policy_file;
    alone.no_project = flags.no_project;
    if (!(flags == alone)) {
      return usage("--policy goes with no other box flag but --no-project",
                   "write what they say into the policy file");
    }
    return policy_from_file(flags.policy_file);
  }
  Policy::Builder builder;
  TRY(add_network(flags, builder));
  TRY(add_mounts(flags, builder));
  TRY(add_modes(flags, builder));
  TRY(add_dangers(flags, builder));
  for (const auto& text : flags.env) {
    const auto equals = text.find('=');
    if (equals == std::string::npos || equals == 0) {
      return usage("--env '" + escape(text) + "' is not K=V", "write it like --env LANG=C.UTF-8");
    }
    builder.env(text.substr(0, equals), text.substr(equals + 1));
  }
  Limits limits;
  limits.memory_mb = flags.memory;
  limits.cpus = flags.cpus;
  limits.cpu_seconds = flags.cpu;
  limits.pids = flags.pids;
  limits.disk_mb = flags.disk;
  limits.output_mb = flags.output;
  limits.ttl_seconds = flags.ttl;
  limits.idle_seconds = flags.idle;
  builder.limits(limits);
  return in_words_of_flags(builder.build());
}

Result<std::string> project_for(const BoxFlags& flags) {
  if (flags.no_project) return std::string();
  return box::own_project(TRY(working_directory()), box::home_directory());
}

}  // namespace temenos::cli
