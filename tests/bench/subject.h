// The one file that knows how temenos' library is called: what the rows measure, and nothing of
// how they measure.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "temenos/box_manager.h"
#include "temenos/error.h"
#include "temenos/policy.h"

namespace temenos::bench {

// What every start needs, found out once. `platform`: a name, or empty for the one that temenos
// chooses on this host.
struct Host {
  static Result<std::shared_ptr<Host>> open(const std::string& platform);
  BoxManager manager;
  Policy policy;
  // The same with the host's network, and with a filtered one that leads to `port` of loopback.
  Policy with_host_network;
  Result<Policy> filtered(std::uint16_t port) const;
  Platform platform;
};

// A box without a name, with nothing mounted but its base; without a network, unless told.
class Subject {
 public:
  static Result<Subject> start(Host& host) { return start(host, host.policy); }
  static Result<Subject> start(Host& host, const Policy& policy);

  // To their end; a command that fails is an error. Gives stdout.
  Result<std::string> exec(const std::vector<std::string>& argv);
  // The output goes to `fd`.
  Result<void> exec_to(const std::vector<std::string>& argv, int fd);
  Result<void> write(std::string_view path, std::string_view data, unsigned mode);
  Result<std::string> read(std::string_view path, std::size_t max);
  Result<void> stop();

 private:
  explicit Subject(Box box) : box_(std::move(box)) {}
  Box box_;
};

}  // namespace temenos::bench
