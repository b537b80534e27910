// Less than a greeting or a request is none, more is the same one, and the host of a request is in
// canonical form.
#include <cstdlib>

#include "wire/socks.h"

namespace {

using namespace temenos::wire;

void require(bool holds) {
  if (!holds) std::abort();
}

void check_request(Bytes all) {
  const SocksRequest said = read_socks_request(all);
  for (std::size_t n = 0; n <= all.size(); ++n) {
    const SocksRequest part = read_socks_request(all.first(n));
    if (part.progress == Progress::kNeedMore) continue;
    require(part.progress == said.progress && part.reason == said.reason);
    require(part.host == said.host && part.size == said.size && part.port == said.port);
    break;
  }
  require((said.progress == Progress::kMalformed) == !said.reason.empty());
  require((said.progress == Progress::kMalformed) == (said.reply != SocksReply::kSucceeded));
  if (said.progress != Progress::kGood) return;
  require(said.size <= all.size() && said.port != 0);
  require(read_socks_request(all.first(said.size - 1)).progress == Progress::kNeedMore);
  require(parse_host(said.host.text) == said.host);
}

void check_login(Bytes all) {
  const SocksLogin said = read_socks_login(all);
  require((said.progress == Progress::kMalformed) == !said.reason.empty());
  if (said.progress != Progress::kGood) return;
  require(said.size <= all.size());
  require(said.size == 3 + said.user.size() + said.password.size());
  require(read_socks_login(all.first(said.size - 1)).progress == Progress::kNeedMore);
  check_request(all.subspan(said.size));
}

}  // namespace

// The request stands behind the greeting, or behind a login there, and alone when there is none.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const Bytes all(data, size);
  const SocksGreeting said = read_socks_greeting(all);
  require((said.progress == Progress::kMalformed) == !said.reason.empty());
  if (said.progress == Progress::kGood) {
    require(said.size >= 3 && said.size <= size);
    require(read_socks_greeting(all.first(said.size - 1)).progress == Progress::kNeedMore);
    check_request(all.subspan(said.size));
    check_login(all.subspan(said.size));
  }
  check_request(all);
  return 0;
}
