#include "gvisor/oci.h"

#include <boost/json/value_from.hpp>

#include "codec/json.h"

namespace temenos::gvisor {
namespace {

namespace json = boost::json;

// init needs them to hide the cgroup mount and to place its children; it drops them for what it
// runs.
constexpr const char* kCapabilities[] = {
    "CAP_AUDIT_WRITE",      "CAP_CHOWN",       "CAP_DAC_OVERRIDE", "CAP_FOWNER",
    "CAP_FSETID",           "CAP_KILL",        "CAP_MKNOD",        "CAP_NET_ADMIN",
    "CAP_NET_BIND_SERVICE", "CAP_NET_RAW",     "CAP_SETFCAP",      "CAP_SETGID",
    "CAP_SETPCAP",          "CAP_SETUID",      "CAP_SYS_ADMIN",    "CAP_SYS_CHROOT",
    "CAP_SYS_PTRACE",       "CAP_SYS_RESOURCE"};

json::array strings(const std::vector<std::string>& list) {
  json::array out;
  for (const auto& text : list) out.emplace_back(text);
  return out;
}

json::object process(const OciConfig& config) {
  json::array capabilities;
  for (const char* name : kCapabilities) capabilities.emplace_back(name);
  json::object sets;
  for (const char* set : {"bounding", "effective", "permitted"}) sets[set] = capabilities;
  json::array rlimits{json::object{{"type", "RLIMIT_NOFILE"}, {"soft", 65536}, {"hard", 1048576}}};
  if (config.tasks > 0) {
    rlimits.push_back(
        json::object{{"type", "RLIMIT_NPROC"}, {"soft", config.tasks}, {"hard", config.tasks}});
  }
  return {{"terminal", false},
          {"user", json::object{{"uid", 0}, {"gid", 0}}},
          {"args", strings(config.args)},
          {"env", json::array{}},
          {"cwd", "/"},
          {"capabilities", sets},
          {"rlimits", std::move(rlimits)}};
}

}  // namespace

std::string oci_config_json(const OciConfig& config) {
  json::array mounts;
  for (const auto& mount : config.mounts) {
    mounts.push_back(json::object{{"destination", mount.target},
                                  {"type", mount.type},
                                  {"source", mount.source},
                                  {"options", strings(mount.options)}});
  }
  json::array namespaces;
  for (const char* type : {"pid", "ipc", "uts", "mount"}) {
    namespaces.push_back(json::object{{"type", type}});
  }
  if (!config.network_namespace.empty()) {
    namespaces.push_back(json::object{{"type", "network"}, {"path", config.network_namespace}});
  }
  const json::object document{{"ociVersion", "1.2.0"},
                              {"process", process(config)},
                              {"root", json::object{{"path", config.root}, {"readonly", false}}},
                              {"hostname", config.hostname},
                              {"mounts", mounts},
                              {"linux", json::object{{"namespaces", namespaces}}}};
  return serialize_json(document);
}

}  // namespace temenos::gvisor
