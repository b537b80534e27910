#include "netns/kernel_settings.h"

#include <fcntl.h>

#include <cerrno>
#include <span>
#include <string>

#include "base/try.h"
#include "base/unique_fd.h"
#include "sys/file_sys.h"

namespace temenos::netns {
namespace {

struct Setting {
  const char* name;
  const char* value;
  bool needed = true;  // else a kernel may lack it
};

// Links that are made afterwards take "default" over.
constexpr Setting kOfBoth[] = {
    {"ipv6/conf/all/disable_ipv6", "0"},
    {"ipv6/conf/default/disable_ipv6", "0"},
    {"ipv6/conf/default/accept_ra", "0"},
    {"ipv6/conf/default/autoconf", "0"},
    {"ipv6/conf/default/accept_dad", "0"},
    {"ipv6/conf/default/router_solicitations", "0"},
    // No link-local address: nobody could be reached by it.
    {"ipv6/conf/default/addr_gen_mode", "1"},
};

constexpr Setting kOfRouter[] = {
    {"ipv4/ip_forward", "0"},
    {"ipv6/conf/all/forwarding", "0"},
    {"ipv4/conf/default/rp_filter", "1"},
    {"ipv4/conf/all/rp_filter", "1"},
    {"ipv4/conf/all/accept_source_route", "0"},
    {"ipv4/conf/all/accept_redirects", "0"},
    {"ipv4/conf/default/accept_redirects", "0"},
    {"ipv4/conf/default/send_redirects", "0"},
    {"ipv4/conf/all/send_redirects", "0"},
    {"ipv4/conf/default/route_localnet", "0"},
    {"ipv4/conf/all/route_localnet", "0"},
    {"ipv4/conf/default/proxy_arp", "0"},
    {"ipv4/conf/all/proxy_arp", "0"},
    {"ipv4/conf/default/arp_ignore", "1"},
    // A box could write into the host's kernel log.
    {"ipv4/conf/default/log_martians", "0"},
    {"ipv4/conf/all/log_martians", "0"},
    {"ipv6/conf/default/accept_redirects", "0"},
    {"ipv4/icmp_echo_ignore_all", "1"},
    {"ipv6/icmp/echo_ignore_all", "1", false},
    // Every refusal is told: clients fall back at once, and the budget that the whole host has for
    // such messages is not touched.
    {"ipv4/icmp_ratemask", "0"},
    {"ipv6/icmp/ratelimit", "0"},
    {"ipv6/icmp/ratemask", "\n", false},
    // What a connection that nobody reads, or a closed one, holds of the host's memory is no limit
    // of the box's. The link is as near as one can be: more than this makes nothing faster.
    {"ipv4/tcp_rmem", "4096 131072 1048576"},
    {"ipv4/tcp_wmem", "4096 16384 1048576"},
    {"ipv4/tcp_max_tw_buckets", "4096"},
    // Answers of a listener are not to have the mark of what it received.
    {"ipv4/fwmark_reflect", "0"},
    {"ipv4/tcp_fwmark_accept", "0"},
    {"ipv6/fwmark_reflect", "0", false},
};

Result<void> write_all_of(std::span<const Setting> settings) {
  const UniqueFd root(open("/proc/sys/net", O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!root) return fail_errno(errno, "opening /proc/sys/net", "mount /proc");
  for (const auto& setting : settings) {
    const UniqueFd file(openat(root.get(), setting.name, O_WRONLY | O_CLOEXEC));
    if (!file && errno == ENOENT && !setting.needed) continue;
    if (!file && errno == ENOENT && std::string_view(setting.name).starts_with("ipv6/")) {
      return fail(Code::kUnsupported, "this kernel runs without IPv6",
                  "start the host without ipv6.disable=1; to have no IPv6 addresses, "
                  "net.ipv6.conf.all.disable_ipv6=1 does and is no hindrance");
    }
    if (!file || !sys::write_all(file.get(), setting.value)) {
      return fail_errno(errno, std::string("setting /proc/sys/net/") + setting.name,
                        "/proc/sys must be writable; run temenos outside of a container");
    }
  }
  return {};
}

}  // namespace

Result<void> settle_box() { return write_all_of(kOfBoth); }

Result<void> settle_router() {
  TRY(write_all_of(kOfBoth));
  return write_all_of(kOfRouter);
}

}  // namespace temenos::netns
