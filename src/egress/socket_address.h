// Addresses as the kernel has them.
//
// Thread-safety: pure values; as the system calls.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <optional>

#include "temenos/network.h"

namespace temenos::egress {

class SocketAddress {
 public:
  SocketAddress(const AddressBlock& address, std::uint16_t port);
  int family() const { return storage_.ss_family; }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage_); }
  socklen_t size() const {
    return family() == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  }

 private:
  sockaddr_storage storage_{};
};

// IPv4-mapped IPv6 comes as IPv4; nullopt for another family.
std::optional<AddressBlock> address_of(const sockaddr* address);
// From bytes in network order, 4 or 16 of them.
AddressBlock address_of_bytes(bool v4, const std::uint8_t* bytes);
// The socket's own address.
std::optional<AddressBlock> local_address(int socket);

}  // namespace temenos::egress
