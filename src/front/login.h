// What the explicit proxy asks its clients for where every user of the host can connect to it: a
// user's name, which is always the same, and a password of its own. Made anew for each proxy, and
// only compared here, in a time that says nothing about it.
//
// Thread-safety: immutable.
#pragma once

#include <string>
#include <string_view>

namespace temenos::front {

class Login {
 public:
  // `of_box`: refusals speak of the box that it belongs to, and of its flags.
  Login(std::string_view password, bool of_box);

  // The value of Proxy-Authorization.
  bool knows(std::string_view credentials) const;
  bool knows(std::string_view user, std::string_view password) const;
  bool of_box() const { return of_box_; }

 private:
  std::string password_;
  std::string basic_;  // both, as HTTP has them: base64 has one form, so nothing is decoded
  bool of_box_;
};

}  // namespace temenos::front
