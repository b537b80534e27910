#include "box/proxy_variables.h"

#include "egress/plan.h"

namespace temenos::box {

std::map<std::string, std::string> proxy_variables(const keeper::ProxyAddress& proxy) {
  const std::string url = "http://" + std::string(egress::kProxyUser) + ":" +
                          keeper::password_of(proxy) + "@127.0.0.1:" + std::to_string(proxy.port);
  std::map<std::string, std::string> out;
  // ALL_PROXY too says http and not socks5h, which some clients do not start with (httpx).
  for (const char* name :
       {"HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"}) {
    out[name] = url;
  }
  return out;
}

}  // namespace temenos::box
