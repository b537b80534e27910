#include "init/knock.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <cstdint>
#include <cstdlib>

#include "base/unique_fd.h"

namespace temenos::init {

void knock(const char* address, const char* port) {
  sockaddr_in target{};
  target.sin_family = AF_INET;
  target.sin_port = htons(static_cast<std::uint16_t>(strtoul(port, nullptr, 10)));
  const UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const timeval patience{5, 0};  // of connect(2), too
  if (!socket || inet_pton(AF_INET, address, &target.sin_addr) != 1 ||
      setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience) != 0) {
    return;
  }
  (void)connect(socket.get(), reinterpret_cast<const sockaddr*>(&target), sizeof target);
}

}  // namespace temenos::init
