#include "front/login.h"

#include "base/text.h"
#include "egress/plan.h"
#include "wire/host_name.h"

namespace temenos::front {

Login::Login(std::string_view password, bool of_box)
    : password_(password),
      basic_(base64_encode(std::string(egress::kProxyUser) + ":" + password_)),
      of_box_(of_box) {}

bool Login::knows(std::string_view credentials) const {
  constexpr std::string_view kScheme = "basic ";
  if (wire::lower_ascii(credentials.substr(0, kScheme.size())) != kScheme) return false;
  return !password_.empty() && equal_in_constant_time(credentials.substr(kScheme.size()), basic_);
}

bool Login::knows(std::string_view user, std::string_view password) const {
  return user == egress::kProxyUser && !password_.empty() &&
         equal_in_constant_time(password, password_);
}

}  // namespace temenos::front
