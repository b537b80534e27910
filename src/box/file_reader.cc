#include "box/file_reader.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

#include "base/try.h"
#include "sys/file_sys.h"

namespace temenos::box {
namespace {

// For all files of a scan: a thousand ordinary ones take less than a tenth of it.
constexpr std::chrono::seconds kTime{10};

Result<sys::Process> spawn(const std::string& path, int socket) {
  UniqueFd pidfd;
  const pid_t pid = TRY(sys::raw_fork(0, &pidfd));
  if (pid == 0) {
    setpgid(0, 0);  // a Ctrl-C is for the command in the box
    const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (dup2(socket, 0) < 0 || dup2(null, 1) < 0 || dup2(null, 2) < 0) _exit(125);
    (void)sys::close_on_exec_from(3);
    char name[] = "temenos-reader";
    char* const argv[] = {name, nullptr};
    char* const environment[] = {nullptr};
    execve(path.c_str(), argv, environment);
    _exit(125);
  }
  return sys::Process(pid, std::move(pidfd));
}

}  // namespace

FileReader::~FileReader() {
  process_.send(SIGKILL);
  process_.wait();
}

Result<void> FileReader::start() {
  deadline_ = std::chrono::steady_clock::now() + kTime;
  const std::string path = TRY(sys::resolve(libexec_ + "/temenos-reader"));
  auto [here, there] = TRY(sys::socket_pair(SOCK_SEQPACKET));
  // Not a descriptor that the child writes over before it copies this one.
  const UniqueFd high(fcntl(there.get(), F_DUPFD_CLOEXEC, 3));
  if (!high) return fail_errno(errno, "starting a reader");
  process_ = TRY(spawn(path, high.get()));
  socket_ = std::move(here);
  return {};
}

Result<std::string> FileReader::ask(const git::Question& question, int file) {
  if (!process_) TRY(start());
  if (!sys::send_with_fds(socket_.get(), git::encode(question), {&file, 1})) {
    return fail(Code::kProtocol, "its reader died");
  }
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        deadline_ - std::chrono::steady_clock::now());
    pollfd fd{socket_.get(), POLLIN, 0};
    const int n = left.count() > 0 ? poll(&fd, 1, static_cast<int>(left.count())) : 0;
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail_errno(errno, "poll");
    if (n == 0) return fail(Code::kTimedOut, "its reader did not answer in time");
    break;
  }
  auto received = sys::receive_with_fds(socket_.get(), git::kMaxAnswer + 1, 0);
  if (!received || received->bytes.empty()) return fail(Code::kProtocol, "its reader died");
  return std::move(received->bytes);
}

Result<git::Answer> FileReader::read(git::FileKind kind, int file) {
  const auto st = TRY(sys::stat_fd(file));
  if (!S_ISREG(st.st_mode)) return fail(Code::kProtocol, "it is no regular file");
  if (failed_) return tl::make_unexpected(*failed_);
  const auto bytes = ask({kind, static_cast<std::uint64_t>(st.st_size)}, file);
  if (!bytes) {
    failed_ = bytes.error();
    process_.send(SIGKILL);
    return tl::make_unexpected(*failed_);
  }
  return git::decode_answer(kind, *bytes);
}

}  // namespace temenos::box
