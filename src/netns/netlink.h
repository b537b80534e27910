// A few requests of rtnetlink(7), one function each. The socket stays in the network namespace in
// which it was opened.
#pragma once

#include <linux/netlink.h>

#include <array>
#include <cstdint>
#include <string>

#include "base/unique_fd.h"
#include "temenos/error.h"

struct mnl_socket;

namespace temenos::netns {

using Mac = std::uint8_t[6];

class Netlink {
 public:
  struct End {
    const char* name;
    unsigned index;
    const Mac& mac;
  };

  // `groups`: of what it hears beside answers (RTMGRP_LINK); such a one only waits.
  static Result<Netlink> open(unsigned groups = 0);
  Netlink(Netlink&& other) noexcept;
  Netlink& operator=(Netlink&&) = delete;
  ~Netlink();

  Result<void> link_up(unsigned index);
  // An open()ed one of RTMGRP_LINK: until the link does send. What goes out between "up" and that
  // is lost, and the kernel gets there in its own time.
  Result<void> wait_until_up(unsigned index, int timeout_ms);
  // A veth pair, both ends down: `here` in the socket's namespace, `there` in that of `there_ns`.
  Result<void> make_pair(const End& here, const End& there, std::uint32_t mtu, int there_ns);
  // IPv6 ones are used at once, without the search for a second owner.
  Result<void> add_address(unsigned link, const std::string& address, int prefix);
  Result<void> add_neighbour(unsigned link, const std::string& address, const Mac& mac);
  Result<void> add_default_route(unsigned link, const std::string& gateway);
  // What has `mark` is routed by `table`, in which each address is one of this host's.
  Result<void> add_mark_rule(int family, std::uint32_t mark, std::uint8_t table);
  Result<void> add_local_default(int family, std::uint8_t table);

 private:
  explicit Netlink(mnl_socket* socket) : socket_(socket) {}
  nlmsghdr* begin(std::uint16_t type, std::uint16_t flags);
  Result<void> ask(nlmsghdr* request, const std::string& what, const char* hint = "");

  mnl_socket* socket_;
  unsigned sequence_ = 0;
  std::array<char, 4096> buffer_;
};

}  // namespace temenos::netns
