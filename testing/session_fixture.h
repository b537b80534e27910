// temenos-session and temenos-init as real programs, init run on the host: so without the sentry,
// and with trees by /proc instead of by groups. For tests that define TEMENOS_LIBEXEC.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "base/unique_fd.h"
#include "box/session_client.h"
#include "session/control.h"
#include "session/loop.h"

namespace temenos::testing {

struct Pair {
  UniqueFd one, two;
};

inline Pair socket_pair(int type) {
  int fds[2];
  EXPECT_EQ(socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, fds), 0);
  return {UniqueFd(fds[0]), UniqueFd(fds[1])};
}

// `one` is read, `two` is written.
inline Pair make_pipe() {
  int fds[2];
  EXPECT_EQ(pipe2(fds, O_CLOEXEC), 0);
  return {UniqueFd(fds[0]), UniqueFd(fds[1])};
}

// A program of libexec with descriptors {from, to}.
inline pid_t start_program(const char* name, std::vector<std::pair<int, int>> fds) {
  const std::string path = std::string(TEMENOS_LIBEXEC) + "/" + name;
  const pid_t pid = fork();
  if (pid != 0) return pid;
  // Out of the way first: a source may be another's target.
  for (auto& [from, to] : fds) from = fcntl(from, F_DUPFD, 20);
  for (const auto& [from, to] : fds) dup2(from, to);
  close_range(5, ~0u, 0);
  execl(path.c_str(), name, nullptr);
  _exit(127);
}

#if defined(__has_feature) && (__has_feature(address_sanitizer) || __has_feature(thread_sanitizer))
inline constexpr std::uint64_t kMemoryKb = 4u << 20;  // the sanitizer's own memory says nothing
#else
inline constexpr std::uint64_t kMemoryKb = 16u << 10;
#endif

// A field of /proc/PID/status; 0 when it is not there.
inline std::uint64_t status_kb(pid_t pid, const std::string& field) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(field + ":")) return std::stoull(line.substr(field.size() + 1));
  }
  return 0;
}

// One session and one init for each test. Init must have ended all that ran below it.
class SessionTest : public ::testing::Test {
 protected:
  void SetUp() override {
    // What init leaves becomes this process's child, and is seen in TearDown.
    ASSERT_EQ(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
    Pair init = socket_pair(SOCK_STREAM);
    Pair control = socket_pair(SOCK_SEQPACKET);
    init_pid_ = start_program("temenos-init", {{init.two.get(), 0}});
    session_pid_ = start_program("temenos-session", {{init.one.get(), session::kInitFd},
                                                     {control.two.get(), session::kControlFd}});
    control_ = std::move(control.one);
    control.two.reset();
    ASSERT_EQ(next_event().type, session::ControlType::kJailed);
    ASSERT_EQ(next_event().type, session::ControlType::kReady);
    char pattern[] = "/tmp/temenos-client-XXXXXX";
    ASSERT_NE(mkdtemp(pattern), nullptr);
    dir_ = pattern;
  }

  void TearDown() override {
    control_.reset();
    int status = 0;
    ASSERT_EQ(waitpid(session_pid_, &status, 0), session_pid_);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
    if (init_pid_ > 0) {
      ASSERT_EQ(waitpid(init_pid_, &status, 0), init_pid_);
      EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
    } else {
      // Init ended nothing; what the test had running ends by itself.
      while (waitpid(-1, nullptr, 0) > 0) {
      }
    }
    end_what_is_left();
    if (!dir_.empty()) EXPECT_EQ(std::system(("rm -r " + dir_).c_str()), 0);
  }

  session::ControlMessage next_event() {
    session::ControlMessage message;
    pollfd entry{control_.get(), POLLIN, 0};
    if (poll(&entry, 1, 30'000) != 1 ||
        recv(control_.get(), &message, sizeof message, 0) != sizeof message) {
      ADD_FAILURE() << "no word from the session";
    }
    return message;
  }

  SessionClient connect() {
    Pair pair = socket_pair(SOCK_STREAM);
    EXPECT_TRUE(
        session::send_control(control_.get(), {session::ControlType::kAddClient}, pair.two.get()));
    pair.two.reset();
    auto client = SessionClient::connect(std::move(pair.one));
    if (!client) ADD_FAILURE() << client.error().to_string();
    return std::move(*client);
  }

  static ExecRequest shell(const std::string& script) {
    ExecRequest request;
    request.argv = {"sh", "-c", script};
    request.env = {"PATH=/usr/bin:/bin"};
    return request;
  }

  pid_t init_pid_ = -1;  // -1: the test has reaped it
  pid_t session_pid_ = -1;
  UniqueFd control_;
  std::string dir_;

 private:
  static void end_what_is_left() {
    const std::string children = "/proc/self/task/" + std::to_string(getpid()) + "/children";
    for (pid_t pid = 0; (pid = waitpid(-1, nullptr, WNOHANG)) >= 0;) {
      if (pid == 0 && !(std::ifstream(children) >> pid)) break;
      ADD_FAILURE() << "process " << pid << " was left";
      kill(pid, SIGKILL);
      waitpid(pid, nullptr, 0);
    }
  }
};

}  // namespace temenos::testing
