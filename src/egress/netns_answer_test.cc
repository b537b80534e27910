#include "egress/netns_answer.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "sys/process_sys.h"

namespace temenos::egress {
namespace {

UniqueFd make_socket(int family, int type, bool listening) {
  UniqueFd fd(socket(family, type | SOCK_CLOEXEC, 0));
  if (listening) {
    // An unbound one listens on a port that the kernel chooses.
    EXPECT_EQ(listen(fd.get(), 1), 0) << strerror(errno);
  }
  return fd;
}

Listeners good_ones() {
  return {make_socket(AF_INET, SOCK_STREAM, true), make_socket(AF_INET6, SOCK_STREAM, true),
          make_socket(AF_INET, SOCK_DGRAM, false), make_socket(AF_INET6, SOCK_DGRAM, false),
          make_socket(AF_INET, SOCK_STREAM, true), make_socket(AF_INET6, SOCK_STREAM, true)};
}

class AnswerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto pair = sys::socket_pair(SOCK_SEQPACKET);
    ASSERT_TRUE(pair);
    here_ = std::move(pair->first);
    there_ = std::move(pair->second);
  }
  UniqueFd here_, there_;
};

TEST_F(AnswerTest, ListenersTravel) {
  ASSERT_TRUE(send_listeners(there_.get(), good_ones(), 1234));
  const auto received = receive_answer(here_.get(), 1000);
  ASSERT_TRUE(received) << received.error().to_string();
  EXPECT_EQ(received->answer.microseconds, 1234u);
  for (const auto& listener : received->listeners) {
    EXPECT_EQ(fcntl(listener.get(), F_GETFD), FD_CLOEXEC);
  }
}

TEST_F(AnswerTest, AFailureTravelsWithItsStepAndItsHint) {
  Failure failure{Step::kTproxy, {}};
  failure.error = fail_errno(ENOENT, "no TPROXY", "modprobe nft_tproxy").value();
  ASSERT_TRUE(send_failure(there_.get(), failure));
  ASSERT_TRUE(send_failure(there_.get(), failure));
  EXPECT_EQ(receive_answer(here_.get(), 1000)->answer.step, Step::kTproxy);
  const auto listeners = receive_listeners(here_.get(), 1000);
  ASSERT_FALSE(listeners);
  EXPECT_EQ(listeners.error().to_string(), failure.error.to_string());
}

TEST_F(AnswerTest, OtherDescriptorsAreNoListeners) {
  for (std::size_t wrong = 0; wrong < kListeners; ++wrong) {
    auto listeners = good_ones();
    listeners[wrong] = wrong == 0   ? UniqueFd(open("/dev/null", O_RDONLY | O_CLOEXEC))
                       : wrong == 1 ? make_socket(AF_INET6, SOCK_STREAM, false)
                       : wrong == 2 ? make_socket(AF_UNIX, SOCK_DGRAM, false)
                       : wrong == 3 ? make_socket(AF_INET, SOCK_DGRAM, false)
                                    : make_socket(AF_INET, SOCK_STREAM, false);
    ASSERT_TRUE(send_listeners(there_.get(), listeners, 0));
    const auto received = receive_answer(here_.get(), 1000);
    ASSERT_FALSE(received) << wrong;
    EXPECT_EQ(received.error().code, Code::kProtocol);
  }
}

TEST_F(AnswerTest, OnlyAWholeOneIsTaken) {
  Answer answer;
  const std::string_view bytes(reinterpret_cast<const char*>(&answer), sizeof answer);
  ASSERT_TRUE(sys::send_with_fds(there_.get(), bytes, {}));  // done, and no listeners
  EXPECT_EQ(receive_answer(here_.get(), 1000).error().code, Code::kProtocol);
  ASSERT_TRUE(sys::send_with_fds(there_.get(), bytes.substr(1), {}));
  EXPECT_EQ(receive_answer(here_.get(), 1000).error().code, Code::kProtocol);
  EXPECT_EQ(receive_answer(here_.get(), 0).error().code, Code::kTimedOut);
  there_.reset();
  EXPECT_EQ(receive_answer(here_.get(), 1000).error().code, Code::kInternal);
}

TEST_F(AnswerTest, HostileTextsAreBounded) {
  Answer answer;
  memset(&answer, 0xff, sizeof answer);
  const Error error = to_error(answer);
  EXPECT_EQ(error.code, Code::kInternal);
  EXPECT_EQ(error.what.size(), sizeof answer.what);
  EXPECT_EQ(error.sys_errno, 0);
}

}  // namespace
}  // namespace temenos::egress
