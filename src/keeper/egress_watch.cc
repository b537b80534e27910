#include "keeper/egress_watch.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/text.h"
#include "base/try.h"
#include "egress/log_files.h"
#include "egress/names.h"
#include "egress/resolver.h"
#include "sys/file_sys.h"

namespace temenos::keeper {
namespace {

using namespace std::chrono_literals;
using egress::Control;
using egress::ControlType;

constexpr auto kAnswerTime = 2s;
constexpr auto kLongestPause = 5s;
constexpr int kAnswersRoom = 8 * 1024;  // the kernel doubles it, and counts 1,280 for an answer
// Deaths in a row; what follows is more of the same, and would push all else out of the log.
constexpr int kToldDeaths = 8;
constexpr int kProxyQueue = 256;  // of connections that front has not accepted yet
constexpr std::size_t kPasswordBytes = 16;
constexpr int kNotExecuted = 126;  // as shells say it

// Of the host, and trusted; but a pipe there must not hold up a keeper. Whole lines of it: dialer
// takes no more than `limit`.
std::string host_file(const char* path, std::size_t limit) {
  const UniqueFd fd(open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  struct stat st{};
  if (!fd || fstat(fd.get(), &st) != 0 || !S_ISREG(st.st_mode)) return "";
  std::string text(limit + 1, '\0');
  std::size_t size = 0;
  for (ssize_t n = 1; n > 0 && size < text.size(); size += static_cast<std::size_t>(n)) {
    n = std::max<ssize_t>(read(fd.get(), text.data() + size, text.size() - size), 0);
  }
  text.resize(size);
  if (size > limit) text.resize(text.rfind('\n', limit - 1) + 1);
  return text;
}

// Of fixed size, for two processes.
Result<UniqueFd> shared_memory(const char* name, std::size_t size) {
  UniqueFd fd(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd || ftruncate(fd.get(), static_cast<off_t>(size)) != 0 ||
      fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return fail_errno(errno, "memfd_create");
  }
  return fd;
}

Result<void> tell(int control, ControlType type, std::span<const int> fds = {},
                  std::uint32_t value = 0) {
  const Control message{type, value};
  // Who does not read is about to be found dead; keeper waits for nobody.
  return sys::send_with_fds(control, {reinterpret_cast<const char*>(&message), sizeof message}, fds,
                            MSG_DONTWAIT);
}

constexpr char kDialerDied[] = "the dialer of the box's network has died; it is started again";
constexpr char kDialerHangs[] =
    "the dialer of the box's network does not answer; it is started again";
constexpr char kFrontHangs[] =
    "the front of the box's network does not answer; it is started again";
constexpr char kFrontDied[] = "the front of the box's network has died; it is started again";

// In the child: `fds` become descriptors 3 and up, and nothing else is left.
[[noreturn]] void become(const std::string& program, const char* word, std::span<const int> fds) {
  constexpr int kFirst = egress::kControlFd;
  constexpr int kHigh = 64;  // beyond all targets
  std::array<int, 8> copies{};
  for (std::size_t i = 0; i < fds.size(); ++i) {
    copies[i] = fcntl(fds[i], F_DUPFD_CLOEXEC, kHigh);
  }
  for (std::size_t i = 0; i < fds.size(); ++i) {
    if (dup2(copies[i], kFirst + static_cast<int>(i)) < 0) _exit(125);
  }
  if (!sys::close_on_exec_from(kFirst + static_cast<int>(fds.size()))) _exit(125);
  const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  for (const int fd : {0, 1, 2}) dup2(null, fd);
  std::string name = program.substr(program.rfind('/') + 1);
  std::string argument = word;
  char* const argv[] = {name.data(), argument.empty() ? nullptr : argument.data(), nullptr};
  char* const environment[] = {nullptr};
  execve(program.c_str(), argv, environment);
  _exit(kNotExecuted);
}

}  // namespace

Result<void> EgressWatch::begin(Parts parts) {
  is_on_ = true;
  parts_ = std::move(parts);
  names_ = TRY(shared_memory("temenos-names", egress::NameTable::kBytes));
  return start_dialer();
}

Result<void> EgressWatch::begin(const LaunchSpec& spec, int data_dir) {
  if (spec.network != NetworkMode::kFiltered && !spec.proxy) return {};
  Parts parts{.dialer = spec.dialer, .front = spec.front};
  for (std::size_t i = 0; i < parts.log.size(); ++i) {
    // RDWR: who writes it also looks how much is in it.
    parts.log[i] =
        TRY(sys::open_beneath(data_dir, egress::kLogFiles[i], O_RDWR | O_APPEND | O_CREAT, 0600));
  }
  std::string rules;
  for (const auto& rule : spec.allow_hosts) rules += rule + "\n";
  parts.rules = TRY(sys::sealed_memory("temenos-rules", rules));
  TRY(begin(std::move(parts)));
  return spec.proxy ? be_proxy(true) : Result<void>();
}

Result<void> EgressWatch::be_proxy(bool of_box) {
  UniqueFd listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in own{.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
  socklen_t size = sizeof own;
  const auto address = reinterpret_cast<sockaddr*>(&own);
  if (!listener || bind(listener.get(), address, size) != 0 ||
      listen(listener.get(), kProxyQueue) != 0 ||
      getsockname(listener.get(), address, &size) != 0) {
    return fail_errno(errno, "the proxy cannot listen on 127.0.0.1", "is loopback up? (ip link)");
  }
  proxy_listener_ = std::move(listener);
  proxy_.port = ntohs(own.sin_port);
  put_password(proxy_, random_hex(kPasswordBytes));
  of_box_ = of_box;
  TRY(start_front());
  // One that cannot be told is dead, which its control socket says next.
  (void)join_them();
  return {};
}

bool EgressWatch::is_proven() const {
  if (!is_on_) return true;
  const bool works = proxy_listener_ ? dialer_.jailed && front_.jailed : proven_;
  return works && has_rules_;
}

Result<void> EgressWatch::take_listeners(netns::Listeners listeners) {
  has_listeners_ = true;
  listeners_ = std::move(listeners);
  TRY(start_front());
  // One that cannot be told is dead, which its control socket says next.
  (void)join_them();
  return {};
}

Result<void> EgressWatch::start(Child& child, const std::string& program, std::span<const int> more,
                                const char* word) {
  auto [here, there] = TRY(sys::socket_pair(SOCK_SEQPACKET));
  std::vector<int> fds{there.get()};
  fds.insert(fds.end(), more.begin(), more.end());
  UniqueFd pidfd;
  const pid_t pid = TRY(sys::raw_fork(0, &pidfd));
  if (pid == 0) become(program, word, fds);
  child.process = sys::Process(pid, std::move(pidfd));
  child.control = std::move(here);
  child.jailed = false;
  child.born = Clock::now();
  child.again.reset();
  child.owes_since.reset();
  return {};
}

Result<void> EgressWatch::start_dialer() {
  const int fds[] = {parts_.log[0].get(), parts_.log[1].get(), names_.get()};
  TRY(start(dialer_, parts_.dialer, fds));
  asked_.clear();
  has_rules_ = false;
  const int rules = parts_.rules.get();
  // One that cannot be told is dead, which its control socket says next.
  if (tell_dialer(ControlType::kRules, {&rules, 1})) (void)tell_resolver();
  return {};
}

Result<void> EgressWatch::start_front() {
  front_has_older_ = false;
  if (proxy_listener_) {
    // Read from where it stands, so each life has its own.
    const UniqueFd password = TRY(sys::sealed_memory("temenos-password", password_of(proxy_)));
    const int both[] = {proxy_listener_.get(), password.get()};
    return start(front_, parts_.front, both, of_box_ ? egress::kBoxProxy : egress::kProxyAlone);
  }
  std::vector<int> fds;
  for (const auto& listener : listeners_) fds.push_back(listener.get());
  return start(front_, parts_.front, fds);
}

// A socket of their own for every pair of lives: nothing of an old life is answered in a new one.
Result<void> EgressWatch::join_them() {
  if (!dialer_.control || !front_.control) return {};
  auto [front_end, dialer_end] = TRY(sys::socket_pair(SOCK_SEQPACKET));
  // For who never reads its answers (see jail/lock_down.h): some dozen of them at most.
  const int room = kAnswersRoom;
  if (setsockopt(dialer_end.get(), SOL_SOCKET, SO_SNDBUF, &room, sizeof room) != 0) {
    return fail_errno(errno, "SO_SNDBUF");
  }
  const int for_front = front_end.get();
  const int for_dialer = dialer_end.get();
  TRY(tell(dialer_.control.get(), ControlType::kFront, {&for_dialer, 1}));
  return tell(front_.control.get(), ControlType::kDialer, {&for_front, 1});
}

Result<void> EgressWatch::tell_resolver() {
  const UniqueFd config = TRY(sys::sealed_memory(
      "temenos-resolver", host_file("/etc/resolv.conf", egress::kMaxResolvConf)));
  const UniqueFd hosts =
      TRY(sys::sealed_memory("temenos-hosts", host_file("/etc/hosts", egress::kMaxHosts)));
  const int fds[] = {config.get(), hosts.get()};
  return tell(dialer_.control.get(), ControlType::kResolver, fds);
}

std::array<pollfd, EgressWatch::kPolls> EgressWatch::polls() const {
  return {pollfd{dialer_.control.get(), POLLIN, 0}, pollfd{front_.control.get(), POLLIN, 0}};
}

int EgressWatch::timeout_ms() const {
  int wait = -1;
  for (const Child* child : {&dialer_, &front_}) {
    auto until = child->again;
    if (child->control && child->owes_since) until = *child->owes_since + hang_time_;
    if (!until) continue;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(*until - Clock::now());
    const int ms = static_cast<int>(std::max<std::int64_t>(left.count(), 0));
    if (wait < 0 || ms < wait) wait = ms;
  }
  return wait;
}

void EgressWatch::note_start_failure(const Child& child, std::optional<sys::ExitStatus> status) {
  const std::string& program = &child == &dialer_ ? parts_.dialer : parts_.front;
  std::string how = program.substr(program.rfind('/') + 1);
  if (status && status->code == kNotExecuted) {
    how += " cannot be executed";
  } else if (status && status->code >= 0) {
    how += " has ended with status " + std::to_string(status->code);
  } else {
    how += " was killed by signal " + std::to_string(status ? status->signal : SIGKILL);
  }
  Error error;
  error.code = Code::kUnsupported;
  error.what = "the box's network does not start: " + how;
  if (!of_box_) error.what = how + " before it was locked down";
  error.hint = "see whether this runs: " + program +
               " --version; and whether temenos doctor finds anything missing";
  start_failure_ = std::move(error);
}

void EgressWatch::note_death(Child& child, const std::string& news) {
  const bool lived = static_cast<bool>(child.process);
  child.control.reset();
  child.process.send(SIGKILL);
  const auto status = child.process.wait();
  if (lived && !is_proven() && !start_failure_) note_start_failure(child, status);
  child.process = {};
  if (&child == &dialer_) refused_before_ += std::exchange(refused_, 0) + 1;
  const auto now = Clock::now();
  // One that could not even be started has not lived, however long ago the last one did.
  child.deaths = lived && now - child.born >= long_life_ ? 1 : child.deaths + 1;
  // The first time at once; one that cannot live is not started for ever without a pause.
  const auto pause = child.deaths == 1 ? 0ms : 50ms * (1 << std::min(child.deaths, 7));
  child.again = now + std::min<std::chrono::milliseconds>(pause, kLongestPause);
  if (&child == &dialer_) front_has_older_ = true;
  if (!lived) return;
  ++deaths_;
  trouble_ = news + (deaths_ > 1 ? " (" + std::to_string(deaths_) + " such ends so far)" : "");
  if (child.deaths <= kToldDeaths) news_.push_back(news);
}

void EgressWatch::check_hang(Child& child, const char* news) {
  if (!child.control || !child.owes_since) return;
  if (Clock::now() - *child.owes_since >= hang_time_) note_death(child, news);
}

bool EgressWatch::hear(Child& child) {
  const auto received = sys::receive_with_fds(child.control.get(), sizeof(Control), 0);
  if (!received || received->bytes.size() != sizeof(Control)) return false;
  Control message;
  memcpy(&message, received->bytes.data(), sizeof message);
  if (message.type == ControlType::kJailed) return !std::exchange(child.jailed, true);
  if (message.type == ControlType::kPong && &child == &front_) {
    const bool asked = child.owes_since.has_value();
    child.owes_since.reset();
    return asked;
  }
  return &child == &dialer_ && on_dialer(message);
}

bool EgressWatch::on_dialer(const Control& message) {
  switch (message.type) {
    case ControlType::kRulesTaken:
    case ControlType::kRulesRefused:
    case ControlType::kLogFlushed:
      return on_answer(message);
    case ControlType::kEnded:
      // Not in turn: dialer says it when front has, and answers other questions meanwhile.
      if (message.value > ends_) return false;
      ended_ = message.value;
      return true;
    case ControlType::kSelfTested:
      proven_ = true;
      return true;
    case ControlType::kWantsResolver:
      (void)tell_resolver();
      return true;
    default:
      return false;
  }
}

bool EgressWatch::on_answer(const Control& message) {
  const bool flushed = message.type == ControlType::kLogFlushed;
  if (asked_.empty() || flushed != (asked_.front() == ControlType::kFlushLog)) return false;
  asked_.pop_front();
  dialer_.owes_since.reset();
  if (!asked_.empty()) dialer_.owes_since = Clock::now();
  answer_ = message;
  if (flushed) refused_ = message.value;
  has_rules_ = has_rules_ || message.type == ControlType::kRulesTaken;
  return true;
}

void EgressWatch::check(std::span<const pollfd> polls) {
  if (!is_on_) return;
  bool join = false;
  if (polls[0].revents != 0 && dialer_.control && !hear(dialer_)) note_death(dialer_, kDialerDied);
  if (polls[1].revents != 0 && front_.control && !hear(front_)) note_death(front_, kFrontDied);
  check_hang(dialer_, kDialerHangs);
  check_hang(front_, kFrontHangs);
  const auto now = Clock::now();
  if (dialer_.again && now >= *dialer_.again) {
    if (start_dialer()) {
      join = true;
    } else {
      note_death(dialer_, kDialerDied);
    }
  }
  if (front_.again && now >= *front_.again && (has_listeners_ || proxy_listener_)) {
    if (start_front()) {
      join = true;
    } else {
      note_death(front_, kFrontDied);
    }
  }
  // One that cannot be told is dead, which its control socket says next.
  if (join) (void)join_them();
}

Result<void> EgressWatch::tell_dialer(ControlType type, std::span<const int> fds) {
  TRY(tell(dialer_.control.get(), type, fds));
  asked_.push_back(type);
  if (!dialer_.owes_since) dialer_.owes_since = Clock::now();
  return {};
}

// Keeper does nothing else meanwhile: dialer is ours, and one that hangs is not waited for long.
template <typename Done>
Result<void> EgressWatch::hear_dialer(Done done, bool must_answer) {
  const auto no_answer =
      fail(Code::kExhausted, "the box's dialer does not answer", "try again in a moment");
  if (!dialer_.control) return no_answer;
  const auto end = Clock::now() + kAnswerTime;
  while (!done()) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now()).count();
    pollfd poll_dialer{dialer_.control.get(), POLLIN, 0};
    const bool in_time = left > 0 && poll(&poll_dialer, 1, static_cast<int>(left)) > 0;
    if (!in_time && !must_answer) return no_answer;
    if (!in_time || !hear(dialer_)) {
      note_death(dialer_, kDialerDied);
      return no_answer;
    }
  }
  return {};
}

// What it still owes to earlier questions comes first, and is not the answer to this one.
Result<Control> EgressWatch::ask_dialer(ControlType type, std::span<const int> fds) {
  if (!is_on_) {
    return fail(Code::kInvalidArgument, "the box has no filtered network",
                "create one with the network mode filtered");
  }
  // Whoever hears of an edit's failure counts on the old rules.
  const bool must_answer = type == ControlType::kRules;
  if (dialer_.control) TRY(tell_dialer(type, fds));
  TRY(hear_dialer([this] { return asked_.empty(); }, must_answer));
  return answer_;
}

Result<void> EgressWatch::replace_rules(UniqueFd rules, bool narrowed) {
  // The next dialer gets this very file.
  constexpr int kSeals = F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK;
  const int fd = rules.get();
  const int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals) {
    return fail(Code::kInvalidArgument, "the allowlist is not in a sealed file", "seal it");
  }
  const auto answer = ask_dialer(ControlType::kRules, {&fd, 1});
  if (!is_on_) return tl::make_unexpected(answer.error());
  if (answer && answer->type != ControlType::kRulesTaken) {
    return fail(Code::kInvalidArgument, "the allowlist was not taken: the old one holds",
                "shorten it");
  }
  if (!answer) {
    // Whether it has them, or takes them later, is not known; the next one gets what holds.
    if (dialer_.control) note_death(dialer_, kDialerDied);
    if (!narrowed) return tl::make_unexpected(answer.error());
  }
  // Who is started again gets these.
  parts_.rules = std::move(rules);
  if (narrowed) end_refused();
  return {};
}

// A front that the box has taken over may hold on to what it has: what it has not said to be ended
// ends with it.
void EgressWatch::end_refused() {
  if (!front_.control) return;
  if (!front_has_older_) {
    ended_.reset();
    const bool told =
        dialer_.control && tell(dialer_.control.get(), ControlType::kEndRefused, {}, ++ends_);
    // 0: front has lost count.
    const auto said = [this] { return ended_ == ends_ || ended_ == 0u; };
    if (told && hear_dialer(said, false) && ended_ == ends_) return;
  }
  note_death(front_,
             "the front of the box's network was ended, with all that was open, since entries of "
             "the allowlist were denied; it is started again");
}

Result<std::uint32_t> EgressWatch::flush_log() {
  if (front_.control && !front_.owes_since && tell(front_.control.get(), ControlType::kPing)) {
    front_.owes_since = Clock::now();
  }
  TRY(ask_dialer(ControlType::kFlushLog, {}));
  return refused_before_ + refused_;
}

void EgressWatch::end() {
  for (Child* child : {&front_, &dialer_}) {
    if (!child->process) continue;
    child->process.send(SIGKILL);
    child->process.wait();
    child->control.reset();
  }
  listeners_ = {};
  proxy_listener_.reset();
}

}  // namespace temenos::keeper
