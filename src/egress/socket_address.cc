#include "egress/socket_address.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cstring>

#include "codec/address.h"

namespace temenos::egress {

SocketAddress::SocketAddress(const AddressBlock& address, std::uint16_t port) {
  if (address.v4) {
    auto& in = reinterpret_cast<sockaddr_in&>(storage_);
    in.sin_family = AF_INET;
    in.sin_port = htons(port);
    std::memcpy(&in.sin_addr, address.bytes.data(), 4);
  } else {
    auto& in6 = reinterpret_cast<sockaddr_in6&>(storage_);
    in6.sin6_family = AF_INET6;
    in6.sin6_port = htons(port);
    std::memcpy(&in6.sin6_addr, address.bytes.data(), 16);
  }
}

AddressBlock address_of_bytes(bool v4, const std::uint8_t* bytes) {
  AddressBlock out{.v4 = v4, .prefix = v4 ? 32 : 128};
  std::copy_n(bytes, v4 ? 4 : 16, out.bytes.begin());
  // The one place that knows how a mapped address is folded is the parser.
  return v4 ? out : *parse_address(format_block(out));
}

std::optional<AddressBlock> address_of(const sockaddr* address) {
  if (address->sa_family == AF_INET) {
    const auto* in = reinterpret_cast<const sockaddr_in*>(address);
    return address_of_bytes(true, reinterpret_cast<const std::uint8_t*>(&in->sin_addr));
  }
  if (address->sa_family == AF_INET6) {
    const auto* in6 = reinterpret_cast<const sockaddr_in6*>(address);
    return address_of_bytes(false, in6->sin6_addr.s6_addr);
  }
  return std::nullopt;
}

std::optional<AddressBlock> local_address(int socket) {
  sockaddr_storage storage{};
  socklen_t size = sizeof storage;
  if (getsockname(socket, reinterpret_cast<sockaddr*>(&storage), &size) != 0) return std::nullopt;
  return address_of(reinterpret_cast<const sockaddr*>(&storage));
}

}  // namespace temenos::egress
