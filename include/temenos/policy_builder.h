// Makes a Policy in code. Setters only collect; build() checks everything and names the first field
// that is wrong. Dangerous choices take a token from temenos/allow/, so that each is greppable.
//
// Thread-safety: none.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "temenos/policy.h"

namespace temenos {

namespace allow {
struct HostNetwork;
struct HomeBind;
struct SharedWrite;
struct CooperativeEnforcement;
struct Autoexec;
}  // namespace allow

class Policy::Builder {
 public:
  Builder() = default;

  Builder& network(NetworkMode mode);  // kHost: network_host
  Builder& network_host(allow::HostNetwork token);
  Builder& allow_host(HostRule rule);
  Builder& allow_host(std::string_view rule);  // a bad one is build()'s error
  Builder& read(std::string path);             // at its own path
  Builder& write(std::string path);
  Builder& mount(Mount mount);
  Builder& volume(VolumeMount volume);
  Builder& secret_file(std::string source, std::string target);
  Builder& env(std::string name, std::string value);  // the last value of a name counts
  Builder& limits(Limits limits);
  Builder& limits_mode(LimitsMode mode);
  Builder& enforcement_cooperative(allow::CooperativeEnforcement token);
  Builder& scratch(Scratch scratch);
  Builder& project(ProjectAccess access);
  Builder& platform(Platform platform);
  Builder& base(std::string name);
  Builder& allow_home_bind(allow::HomeBind token);
  Builder& allow_shared_write(allow::SharedWrite token);
  Builder& allow_autoexec(allow::Autoexec token);

  Result<Policy> build() const;

 private:
  PolicyFields fields_;
  std::optional<Error> first_error_;
};

}  // namespace temenos
