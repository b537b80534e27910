#include "temenos/allow/autoexec.h"
#include "temenos/allow/cooperative_enforcement.h"
#include "temenos/allow/home_bind.h"
#include "temenos/allow/host_network.h"
#include "temenos/allow/shared_write.h"
#include "temenos/policy_builder.h"

namespace temenos {

using Builder = Policy::Builder;

Builder& Builder::network(NetworkMode mode) {
  fields_.network = mode;
  return *this;
}
Builder& Builder::network_host(allow::HostNetwork) {
  fields_.network = NetworkMode::kHost;
  fields_.allowed.host_network = true;
  return *this;
}
Builder& Builder::allow_host(HostRule rule) {
  fields_.allow_hosts.push_back(std::move(rule));
  return *this;
}
Builder& Builder::allow_host(std::string_view rule) {
  auto parsed = HostRule::parse(rule);
  if (parsed) return allow_host(std::move(*parsed));
  if (!first_error_) first_error_ = std::move(parsed).error().with_context("allow_hosts");
  return *this;
}
Builder& Builder::read(std::string path) {
  return mount({.source = std::move(path), .access = Access::kRead});
}
Builder& Builder::write(std::string path) {
  return mount({.source = std::move(path), .access = Access::kWrite});
}
Builder& Builder::mount(Mount mount) {
  fields_.mounts.push_back(std::move(mount));
  return *this;
}
Builder& Builder::volume(VolumeMount volume) {
  fields_.volumes.push_back(std::move(volume));
  return *this;
}
Builder& Builder::secret_file(std::string source, std::string target) {
  fields_.secret_files.push_back({.source = std::move(source), .target = std::move(target)});
  return *this;
}
Builder& Builder::env(std::string name, std::string value) {
  fields_.env.insert_or_assign(std::move(name), std::move(value));
  return *this;
}
Builder& Builder::limits(Limits limits) {
  fields_.limits = limits;
  return *this;
}
Builder& Builder::limits_mode(LimitsMode mode) {
  fields_.limits_mode = mode;
  return *this;
}
Builder& Builder::enforcement_cooperative(allow::CooperativeEnforcement) {
  fields_.enforcement = Enforcement::kCooperative;
  fields_.allowed.cooperative = true;
  return *this;
}
Builder& Builder::scratch(Scratch scratch) {
  fields_.scratch = scratch;
  return *this;
}
Builder& Builder::project(ProjectAccess access) {
  fields_.project = access;
  return *this;
}
Builder& Builder::platform(Platform platform) {
  fields_.platform = platform;
  return *this;
}
Builder& Builder::base(std::string name) {
  fields_.base = std::move(name);
  return *this;
}
Builder& Builder::allow_home_bind(allow::HomeBind) {
  fields_.allowed.home_bind = true;
  return *this;
}
Builder& Builder::allow_shared_write(allow::SharedWrite) {
  fields_.allowed.shared_write = true;
  return *this;
}
Builder& Builder::allow_autoexec(allow::Autoexec) {
  fields_.allowed.autoexec = true;
  return *this;
}

Result<Policy> Builder::build() const {
  if (first_error_) return tl::unexpected<Error>(*first_error_);
  return Policy::checked(fields_);
}

}  // namespace temenos
