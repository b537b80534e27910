#include "box/box_handle.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <thread>

#include "base/text.h"
#include "base/try.h"
#include "box/limit_plan.h"
#include "box/limits_probe.h"
#include "box/proxy_variables.h"
#include "box/watched_file.h"
#include "egress/plan.h"
#include "keeper/keeper.h"
#include "store/start_gate.h"
#include "sys/file_sys.h"

namespace temenos::box {
namespace {

// A keeper has 60 s to end a box, and one that starts has 30.
constexpr std::chrono::seconds kTurnPatience{100};
// After the keeper's end; the lock is free a moment after its last word.
constexpr std::chrono::seconds kLifePatience{75};
// More would only wait for each other (store/start_gate.h).
constexpr unsigned kStartsPerCpu = 4;
constexpr std::chrono::minutes kStartPatience{10};
constexpr std::chrono::seconds kMoment{5};
constexpr int kAskAgainMs = 20;

BoxStats stats_of(const keeper::Message& message) {
  using keeper::Numbers;
  const Numbers& numbers = message.numbers;
  const auto number = [](std::uint64_t value) {
    return value == Numbers::kUnknown ? std::nullopt : std::optional(value);
  };
  const auto per_cent = [](std::uint64_t value) {
    return value == Numbers::kUnknown ? std::nullopt
                                      : std::optional(static_cast<double>(value) / 100);
  };
  BoxStats stats;
  stats.memory_bytes = number(numbers.memory_bytes);
  stats.memory_peak_bytes = number(numbers.memory_peak_bytes);
  stats.cpu_us = number(numbers.cpu_us);
  stats.tasks = number(numbers.tasks);
  stats.tasks_peak = number(numbers.tasks_peak);
  stats.disk_bytes = number(numbers.disk_bytes);
  stats.memory_pressure = per_cent(numbers.memory_pressure);
  stats.cpu_pressure = per_cent(numbers.cpu_pressure);
  stats.io_pressure = per_cent(numbers.io_pressure);
  stats.driver = cgroup::driver_name(static_cast<cgroup::Driver>(numbers.driver));
  stats.memory_held = (numbers.held & Numbers::kHeldMemory) != 0;
  stats.cpu_held = (numbers.held & Numbers::kHeldCpu) != 0;
  stats.tasks_held = (numbers.held & Numbers::kHeldTasks) != 0;
  stats.disk_held = (numbers.held & Numbers::kHeldDisk) != 0;
  stats.disk_watched = (numbers.held & Numbers::kWatchedDisk) != 0;
  stats.trouble = keeper::text_of(message);
  return stats;
}

std::uint32_t promised(const cgroup::Controls& controls) {
  using keeper::Numbers;
  return (controls.memory ? Numbers::kHeldMemory : 0) | (controls.cpu ? Numbers::kHeldCpu : 0) |
         (controls.tasks ? Numbers::kHeldTasks : 0);
}

// A session that has no room for one more closes the connection without a word.
Result<SessionClient> connect_through(KeeperLink& keeper) {
  auto client = SessionClient::connect(TRY(keeper.attach()));
  if (client || client.error().code != Code::kBoxDied || !keeper.alive()) return client;
  return fail(Code::kExhausted, "the box has as many callers as it takes (64)",
              "wait until one has ended");
}

}  // namespace

Result<void> refuse_what_is_not_built(const Policy& policy) {
  struct {
    bool asked;
    const char* what;
    const char* hint;
  } const rows[] = {
      {policy->network == NetworkMode::kNat, "the network mode 'nat' is not built yet",
       "say --no-net for a box without a network"},
      {policy->project == ProjectAccess::kReview, "--review is not built yet",
       "use --ephemeral: the project is read-only then"},
      {policy->base != "host", "images are not built yet", "leave --image out"},
  };
  for (const auto& row : rows) {
    if (row.asked) return fail(Code::kNotBuilt, row.what, row.hint);
  }
  if (policy->limits.disk_mb && policy->scratch == Scratch::kRunsc) {
    return fail(Code::kUnsupported,
                "limits.disk_mb cannot be kept with scratch runsc: its files lie in gVisor's own "
                "memory",
                "limit the memory instead (--memory), or say --scratch memory");
  }
  return {};
}

void sweep(const HostDirs& dirs) {
  for (const auto kind : {store::Kind::kRun, store::Kind::kBoxes}) {
    store::sweep(dirs.data, kind, keeper::remove_box);
  }
}

Result<BoxEnd> stop_box(const HostDirs& dirs, store::DataDir& dir,
                        std::unique_ptr<KeeperLink> keeper) {
  if (!keeper) {
    auto link = KeeperLink::connect(dir);
    if (link) keeper = std::make_unique<KeeperLink>(std::move(*link));
  }
  if (keeper) TRY(keeper->stop());
  // A killed one has no last word: its lock says when nobody is left.
  TRY(store::take_life(dir, kLifePatience));
  dir.life.reset();
  BoxEnd end = look_at_watched(dir, dirs);
  forget_watched(dir);
  return end;
}

void BoxHandle::take_settings(const Policy& policy) {
  env_ = policy->env;
  network_ = policy->network;
  cooperative_ = policy->enforcement == Enforcement::kCooperative;
}

std::string_view BoxHandle::why_network_is_free() const {
  if (cooperative_) return kCooperativeBox;
  return network_ == NetworkMode::kHost ? "the box has the host's network, unfiltered" : "";
}

Result<void> BoxHandle::prepare(const Policy& policy, const StartOptions& options) {
  mounts_ = TRY(resolve_mounts(policy, options.project_dir, dirs_));
  warnings_ = mounts_.warnings;
  trouble_.clear();
  take_settings(policy);
  if (network_ == NetworkMode::kHost || cooperative_) warnings_.emplace_back(why_network_is_free());
  if (record_ && policy->scratch != Scratch::kDisk) {
    warnings_.emplace_back("nothing that the box writes outside of its mounts outlives its stop");
  }
  default_directory_ = options.project_dir.empty() ? kBoxHome
                       : options.directory.empty() ? options.project_dir
                                                   : options.directory;
  return {};
}

Result<BoxHandle> BoxHandle::start(const Policy& policy, const HostDirs& dirs,
                                   const StartOptions& options) {
  TRY(refuse_what_is_not_built(policy));
  BoxHandle box;
  box.dirs_ = dirs;
  box.policy_ = policy;
  TRY(box.prepare(policy, options));
  box.data_ = TRY(store::stage(dirs.data, store::Kind::kRun));
  auto launched = store::publish(dirs.data, store::Kind::kRun, box.data_, random_hex(8));
  if (launched) launched = box.launch(policy, options, false);
  if (!launched) {
    (void)box.stop();
    return tl::make_unexpected(std::move(launched).error().with_context("cannot start the box"));
  }
  return box;
}

BoxHandle BoxHandle::of(const HostDirs& dirs, store::DataDir dir, BoxRecord record) {
  BoxHandle box;
  box.dirs_ = dirs;
  box.data_ = std::move(dir);
  box.take_settings(record.policy);
  if (!record.project_dir.empty()) box.default_directory_ = record.project_dir;
  box.record_ = std::make_unique<BoxRecord>(std::move(record));
  return box;
}

Result<void> BoxHandle::attach() {
  if (session_) return {};
  auto link = std::make_unique<KeeperLink>(TRY(KeeperLink::connect(data_)));
  if (cooperative_) proxy_ = TRY(link->proxy());
  session_ = std::make_unique<SessionClient>(TRY(connect_through(*link)));
  keeper_ = std::move(link);
  return {};
}

std::optional<Error> BoxHandle::untold_end(bool ask) {
  using keeper::EndReason;
  if (!session_ || !keeper_) return std::nullopt;
  // One that is ending the box answers with its last word.
  if (ask) (void)keeper_->alive();
  const auto end = keeper_->why_ended(0);
  const auto reason = keeper_->end_reason();
  const bool asked_for =
      reason == EndReason::kStopped || reason == EndReason::kTtlOver || reason == EndReason::kIdle;
  if (!end || !record_ || !asked_for) return end;
  detach();
  return std::nullopt;
}

void BoxHandle::detach() {
  session_.reset();
  keeper_.reset();
}

Result<bool> BoxHandle::ensure_started(const StartOptions& options) {
  const auto attached = attach();
  if (attached) return false;
  // Not running, or about to be gone; anything else a start would not mend.
  if (attached.error().code != Code::kNotFound && attached.error().code != Code::kBoxDied) {
    return tl::make_unexpected(attached.error());
  }
  const UniqueFd turn = TRY(store::take_turn(data_, kTurnPatience));
  // Another one may have started it while we waited.
  if (attach()) return false;
  // And others may have edited it.
  *record_ = TRY(read_record(data_.directory.get()));
  const Policy& policy = record_->policy;
  TRY(refuse_what_is_not_built(policy));
  TRY(store::take_life(data_, kLifePatience));
  found_at_start_ = look_at_watched(data_, dirs_);
  StartOptions own = options;
  own.project_dir = record_->project_dir;
  auto launched = [&]() -> Result<void> { return settle_jobs(TRY(jobs_directory()).get()); }();
  if (launched) launched = prepare(policy, own);
  // What was found is for whoever starts it now, and he may die before he has said it, or fail:
  // then the older state stays what the end is compared with, and tells it again.
  if (launched && found_at_start_.empty()) launched = keep_watched(data_, mounts_.watched);
  if (launched) launched = launch(policy, own, true);
  // From here on keeper holds it, or nobody does.
  data_.life.reset();
  mounts_ = {};
  if (!launched) {
    detach();
    return tl::make_unexpected(std::move(launched).error().with_context("cannot start the box"));
  }
  return true;
}

Result<void> BoxHandle::launch(const Policy& policy, const StartOptions& options, bool durable) {
  std::vector<std::string> writes;
  for (const auto& bind : mounts_.binds) {
    if (bind.writable) writes.push_back(bind.source);
  }
  TRY(store::claim_writable(dirs_.data, data_, writes, policy->allowed.shared_write));
  keeper::Launch launch;
  keeper::LaunchSpec& spec = launch.spec;
  spec.hostname = "temenos";
  spec.platform = options.platform;
  spec.network = cooperative_ ? NetworkMode::kHost : network_;
  spec.proxy = cooperative_;
  spec.runsc = options.runsc;
  spec.init = TRY(program(dirs_, "temenos-init"));
  spec.session = TRY(program(dirs_, "temenos-session"));
  spec.scope = TRY(program(dirs_, "temenos-scope"));
  if (spec.network == NetworkMode::kFiltered) {
    spec.netsetup = TRY(program(dirs_, "temenos-netsetup"));
  }
  if (network_ == NetworkMode::kFiltered) {
    spec.dialer = TRY(program(dirs_, "temenos-dialer"));
    spec.front = TRY(program(dirs_, "temenos-front"));
    for (const auto& rule : policy->allow_hosts) spec.allow_hosts.push_back(rule.to_string());
  }
  spec.data_dir = data_.path;
  spec.durable = durable;
  spec.binds = mounts_.binds;
  spec.memory = mounts_.memory;
  spec.start_timeout_s = options.start_timeout_s;
  spec.scratch = policy->scratch;
  spec.scratch_mb = policy->limits.disk_mb.value_or(spec.scratch_mb);
  spec.limits = TRY(plan_limits(policy->limits, policy->limits_mode, options.limits,
                                options.platform, host_size()));
  spec.limits.group = group_name();
  spec.ttl_s = policy->limits.ttl_seconds.value_or(0);
  spec.idle_s = policy->limits.idle_seconds.value_or(0);
  auto duplicate = [](int fd) { return UniqueFd(fcntl(fd, F_DUPFD_CLOEXEC, 3)); };
  launch.data_dir = duplicate(data_.directory.get());
  for (const auto& source : mounts_.sources) launch.sources.push_back(duplicate(source.get()));
  auto [client_here, client_there] = TRY(sys::socket_pair(SOCK_STREAM));
  launch.client = std::move(client_there);
  const UniqueFd place = TRY(store::wait_to_start(
      dirs_.cache + "/starts", std::max(1u, std::thread::hardware_concurrency()) * kStartsPerCpu,
      kStartPatience, options.cancel_fd));
  if (durable) launch.listener = TRY(KeeperLink::listen(data_));
  auto link = KeeperLink::launch(TRY(program(dirs_, "temenos-keeper")), std::move(launch),
                                 options.cancel_fd);
  const auto held = link ? link->ready().numbers.held : 0;
  const bool refused = !link && link.error().code == Code::kUnsupported;
  if ((link || refused) && (promised(options.limits.controls) & ~held) != 0) forget_limits(dirs_);
  keeper_ = std::make_unique<KeeperLink>(TRY(std::move(link)));
  proxy_ = keeper_->ready().proxy;
  const std::string trouble = keeper::text_of(keeper_->ready());
  if (!trouble.empty()) warnings_.push_back(trouble);
  memory_is_held_ = (keeper_->ready().numbers.held & keeper::Numbers::kHeldMemory) != 0;
  session_ = std::make_unique<SessionClient>(TRY(SessionClient::connect(std::move(client_here))));
  return {};
}

// As systemd shows it: the box's name, and something that no other box of this name has, nor this
// one's last life, which may not be gone from everywhere yet.
std::string BoxHandle::group_name() const {
  return "temenos-" + (record_ ? record_->name.name : "run") + "-" + random_hex(4);
}

Result<BoxStats> BoxHandle::stats() {
  const auto reply = TRY(keeper_->stats());
  return stats_of(reply);
}

std::optional<RefusalWatch> BoxHandle::watch_refusals() {
  if (network_ != NetworkMode::kFiltered || !keeper_) return std::nullopt;
  return RefusalWatch::begin(*keeper_, data_.directory.get());
}

void BoxHandle::note_trouble(const std::string& trouble) {
  if (trouble.empty() || trouble == trouble_) return;
  trouble_ = trouble;
  warnings_.push_back(trouble);
}

bool BoxHandle::ran_out_of_memory() {
  if (!keeper_) return false;
  const auto reply = keeper_->stats();
  if (reply) return reply->numbers.oom_kills > 0;
  return keeper_->end_reason() == keeper::EndReason::kOutOfMemory;
}

Result<SessionClient> BoxHandle::connect() { return connect_through(*keeper_); }

Result<UniqueFd> BoxHandle::jobs_directory() const {
  return sys::make_directories(data_.directory.get(), "jobs", 0700);
}

namespace {

// Ordinary programs get a refusal as a page to read, where without these the connection would only
// be reset. What is in the box itself stays there.
void add_proxy(std::map<std::string, std::string>& environment) {
  const std::string proxy =
      "http://" + std::string(egress::kRouter4) + ":" + std::to_string(egress::kProxyPort);
  for (const char* name : {"HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy"}) {
    environment[name] = proxy;
  }
  for (const char* name : {"NO_PROXY", "no_proxy"}) {
    environment[name] = "localhost,.localhost,127.0.0.1,::1,[::1]";
  }
}

}  // namespace

std::vector<std::string> BoxHandle::environment(
    const std::map<std::string, std::string>& extra) const {
  std::map<std::string, std::string> all{
      {"HOME", kBoxHome},
      {"LANG", "C.UTF-8"},
      {"LOGNAME", "root"},
      {"PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
      {"SHELL", "/bin/bash"},
      {"TEMENOS", "1"},
      {"TMPDIR", "/tmp"},
      {"TMPPREFIX", "/tmp/zsh"},
      {"USER", "root"},
  };
  if (cooperative_) {
    if (proxy_.port != 0) all.merge(proxy_variables(proxy_));
  } else if (network_ == NetworkMode::kFiltered) {
    add_proxy(all);
  }
  for (const auto& [name, value] : env_) all[name] = value;
  for (const auto& [name, value] : extra) all[name] = value;
  std::vector<std::string> out;
  for (const auto& [name, value] : all) out.push_back(name + "=" + value);
  return out;
}

BoxEnd BoxHandle::look_again() const {
  BoxEnd end;
  for (const auto& watched : mounts_.watched) {
    report_autoexec(watched.directory, watched.source, watched.before, dirs_.libexec, end);
  }
  return end;
}

Error BoxHandle::explain(const Error& error) {
  // The session only sees that the box is gone; the keeper knows why, and says so as its last word.
  const bool gone = error.code == Code::kBoxDied;
  if (!keeper_ || (!gone && error.code != Code::kProtocol)) return error;
  // Session tells its clients a moment before keeper hears of it. A keeper that is ending the box
  // answers with its last word only; one that goes on answering has a box that lives, and it was
  // this connection alone that broke.
  const auto limit = std::chrono::steady_clock::now() + (gone ? kMoment : std::chrono::seconds(0));
  while (keeper_->alive()) {
    if (std::chrono::steady_clock::now() >= limit) return error;
    if (keeper_->why_ended(kAskAgainMs)) break;
  }
  const auto reason = keeper_->why_ended(0);
  end_reason_ = keeper_->end_reason();
  oom_evidence_ = keeper_->evidence();
  return reason.value_or(error);
}

BoxEnd BoxHandle::look() const { return record_ ? look_at_watched(data_, dirs_) : look_again(); }

Result<BoxEnd> BoxHandle::stop() {
  if (!data_.directory) return BoxEnd{};
  if (!record_) {
    session_.reset();
    if (keeper_) (void)keeper_->stop();
    BoxEnd end = look_again();
    mounts_ = {};
    TRY(store::remove(dirs_.data, store::Kind::kRun, std::move(data_), keeper::remove_box));
    return end;
  }
  const UniqueFd turn = TRY(store::take_turn(data_, kTurnPatience));
  session_.reset();
  return stop_box(dirs_, data_, std::move(keeper_));
}

BoxHandle::~BoxHandle() {
  if (!record_) (void)stop();
}

}  // namespace temenos::box
