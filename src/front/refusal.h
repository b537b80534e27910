// What a client that is refused gets to read, in its own protocol.
//
// Thread-safety: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "egress/dial_protocol.h"
#include "wire/socks.h"

namespace temenos::front {

struct Refused {
  egress::Why why = egress::Why::kNotAllowed;
  bool failed = false;    // allowed, and there is no connection
  bool of_box = true;     // else of a proxy that belongs to none
  std::string_view host;  // canonical: names and addresses only, so it can be printed
  std::uint16_t port = 0;
  std::string_view seen;  // kForeignName: what the client's own bytes named; canonical
};

// One sentence and what to do, each a line.
std::string refusal_text(const Refused& refused);
// A whole HTTP/1.1 response, 403 or, for a failure, 502; the connection ends after it.
std::string http_refusal(const Refused& refused);
// The same for a client that has not said the proxy's password: 407.
std::string login_refusal();
// A fatal alert access_denied in a record of its own.
std::string tls_refusal();
// The code that comes closest, and the reply with it.
wire::SocksReply socks_code(const Refused& refused);
std::string socks_text(wire::SocksReply reply);

}  // namespace temenos::front
