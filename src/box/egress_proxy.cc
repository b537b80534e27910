#include "temenos/egress_proxy.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

#include "base/try.h"
#include "box/host_dirs.h"
#include "box/keeper_link.h"
#include "box/proxy_variables.h"
#include "egress/judge.h"
#include "egress/log.h"
#include "sys/file_sys.h"

namespace temenos {

struct EgressProxy::Impl {
  box::KeeperLink keeper;
  std::array<UniqueFd, 2> log;  // shared with dialer, which writes it

  // kBoxDied would speak of a box.
  Error explain(Error error) const {
    if (error.code != Code::kBoxDied) return error;
    return fail(Code::kBoxDied, "the proxy has ended", "start another one").value();
  }
};

namespace {

// One rule a line, in a sealed file.
Result<UniqueFd> rules_file(std::span<const HostRule> rules) {
  std::string lines;
  for (const auto& rule : rules) lines += rule.to_string() + "\n";
  if (rules.size() > egress::kMaxRules || lines.size() > egress::kMaxRulesText) {
    return fail(Code::kInvalidArgument, "the allowlist has more than 4096 rules, or a mebibyte",
                "shorten it");
  }
  return sys::sealed_memory("temenos-rules", lines);
}

// A file in memory: nothing of the log is left on a disk.
Result<UniqueFd> log_file() {
  UniqueFd fd(memfd_create("temenos-log", MFD_CLOEXEC));
  if (!fd || fcntl(fd.get(), F_SETFL, O_RDWR | O_APPEND) != 0) {
    return fail_errno(errno, "memfd_create", "free some memory");
  }
  return fd;
}

// While another process may be writing it: what is half there is no line.
std::string text_of(const UniqueFd& fd) {
  std::string out(2 * egress::kLogSegment, '\0');
  const ssize_t count = pread(fd.get(), out.data(), out.size(), 0);
  out.resize(count > 0 ? static_cast<std::size_t>(count) : 0);
  return out;
}

Result<box::HostDirs> libexec_of(const EgressProxyOptions& options) {
  box::HostDirs dirs;
  dirs.libexec = options.libexec.empty() ? TRY(box::libexec_beside_program()) : options.libexec;
  return dirs;
}

}  // namespace

EgressProxy::EgressProxy(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
EgressProxy::EgressProxy(EgressProxy&&) noexcept = default;
EgressProxy& EgressProxy::operator=(EgressProxy&& other) noexcept {
  if (this != &other) {
    if (impl_) (void)impl_->keeper.stop();
    impl_ = std::move(other.impl_);
  }
  return *this;
}
EgressProxy::~EgressProxy() {
  if (impl_) (void)impl_->keeper.stop();
}

Result<EgressProxy> EgressProxy::start(std::span<const HostRule> rules,
                                       const EgressProxyOptions& options) {
  const auto dirs = TRY(libexec_of(options));
  const std::string keeper = TRY(box::program(dirs, "temenos-keeper"));
  box::KeeperLink::ProxyStart start;
  start.dialer = TRY(box::program(dirs, "temenos-dialer"));
  start.front = TRY(box::program(dirs, "temenos-front"));
  start.rules = TRY(rules_file(rules));
  for (auto& segment : start.log) segment = TRY(log_file());
  auto link = box::KeeperLink::launch_proxy(keeper, start);
  if (!link) {
    return tl::make_unexpected(std::move(link).error().with_context("cannot start the proxy"));
  }
  return EgressProxy(
      std::make_unique<Impl>(Impl{.keeper = std::move(*link), .log = std::move(start.log)}));
}

std::uint16_t EgressProxy::port() const {
  return static_cast<std::uint16_t>(impl_->keeper.ready().proxy.port);
}

std::map<std::string, std::string> EgressProxy::environment() const {
  return box::proxy_variables(impl_->keeper.ready().proxy);
}

std::string_view EgressProxy::enforcement_reason() const {
  return "cooperative, not a boundary: a program that does not use the proxy reaches what its user "
         "reaches";
}

Result<void> EgressProxy::set_rules(std::span<const HostRule> rules) {
  const UniqueFd file = TRY(rules_file(rules));
  auto set = impl_->keeper.set_rules(file.get(), true);
  if (!set) return tl::make_unexpected(impl_->explain(std::move(set).error()));
  return {};
}

Result<std::vector<EgressEvent>> EgressProxy::log() {
  auto flushed = impl_->keeper.flush_network_log();
  if (!flushed) return tl::make_unexpected(impl_->explain(std::move(flushed).error()));
  std::vector<EgressEvent> out;
  for (auto& record : egress::read_log(text_of(impl_->log[0]), text_of(impl_->log[1])).records) {
    if (record.event != "connect" && record.event != "end") continue;
    out.push_back({.time = std::move(record.time),
                   .event = std::move(record.event),
                   .host = std::move(record.host),
                   .port = record.port,
                   .address = std::move(record.address),
                   .protocol = std::move(record.protocol),
                   .verdict = std::move(record.verdict),
                   .rule = std::move(record.rule),
                   .why = std::move(record.why),
                   .up = record.up,
                   .down = record.down,
                   .ms = record.ms,
                   .count = record.count});
  }
  return out;
}

}  // namespace temenos
