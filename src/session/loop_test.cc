#include "session/loop.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <thread>

namespace temenos::session {
namespace {

using namespace box_wire;

class LoopTest : public testing::Test {
 protected:
  void SetUp() override {
    auto [init_far, init_near] = pair(SOCK_STREAM);
    auto [control_far, control_near] = pair(SOCK_SEQPACKET);
    init_ = std::move(init_near);
    control_ = std::move(control_near);
    loop_ = std::thread([init = std::move(init_far), control = std::move(control_far)]() mutable {
      EXPECT_TRUE(serve(std::move(init), std::move(control), {.hello_timeout = 300}));
    });
  }
  void TearDown() override {
    control_.reset();
    loop_.join();
  }
  static std::pair<UniqueFd, UniqueFd> pair(int type) {
    int fds[2];
    EXPECT_EQ(socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, fds), 0);
    return {UniqueFd(fds[0]), UniqueFd(fds[1])};
  }
  static void send(int fd, ByteQueue& out) {
    iovec parts[16];
    const auto count = static_cast<int>(out.peek(parts));
    ASSERT_EQ(writev(fd, parts, count), static_cast<ssize_t>(out.size()));
    out.clear();
  }
  void greet() {
    ByteQueue out;
    put(out, 0, Hello{});
    send(init_.get(), out);
    EXPECT_EQ(event().type, ControlType::kReady);
  }
  // Init's side of one PING.
  void answer_ping() {
    Frame frame;
    for (;;) {
      while (from_session_.peek(frame) == FrameReader::Status::kFrame) {
        Ping ping;
        const bool is_ping =
            static_cast<Type>(frame.header.type) == Type::kPing && decode(frame.payload, ping);
        const std::uint32_t id = frame.header.id;
        from_session_.pop();
        if (!is_ping) continue;
        ByteQueue out;
        put_pong(out, id, ping);
        return send(init_.get(), out);
      }
      const auto space = from_session_.space();
      const ssize_t count = read(init_.get(), space.data(), space.size());
      ASSERT_GT(count, 0);
      from_session_.commit(static_cast<std::size_t>(count));
    }
  }
  UniqueFd client() {
    auto [near, far] = pair(SOCK_STREAM);
    EXPECT_TRUE(send_control(control_.get(), {ControlType::kAddClient}, far.get()));
    ByteQueue out;
    put(out, 0, Hello{});
    send(near.get(), out);
    return std::move(near);
  }
  // False: nothing was to be said for several steps.
  bool event_comes() const {
    pollfd fd{control_.get(), POLLIN, 0};
    return poll(&fd, 1, 1000) > 0;
  }
  ControlMessage event() {
    ControlMessage message{ControlType::kStop};
    EXPECT_EQ(recv(control_.get(), &message, sizeof message, 0),
              static_cast<ssize_t>(sizeof message));
    return message;
  }

  UniqueFd init_;
  UniqueFd control_;
  std::thread loop_;
  FrameReader from_session_{kMaxFrame};
};

TEST_F(LoopTest, StopEndsInBye) {
  greet();
  ASSERT_TRUE(send_control(control_.get(), {ControlType::kStop}));
  EXPECT_EQ(event().type, ControlType::kBye);
}

TEST_F(LoopTest, ADescriptorFromInitNeverArrives) {
  // The socket that is passed has no holder but the message: its peer hears when it is dropped.
  auto [passed, peer] = pair(SOCK_STREAM);
  ByteQueue out;
  put(out, 0, Hello{});
  iovec parts[1];
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = out.peek(parts);
  alignas(cmsghdr) char room[CMSG_SPACE(sizeof(int))] = {};
  message.msg_control = room;
  message.msg_controllen = sizeof room;
  cmsghdr* rights = CMSG_FIRSTHDR(&message);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(sizeof(int));
  const int fd = passed.get();
  std::memcpy(CMSG_DATA(rights), &fd, sizeof fd);
  ASSERT_EQ(sendmsg(init_.get(), &message, 0), static_cast<ssize_t>(out.size()));
  passed.reset();
  EXPECT_EQ(event().type, ControlType::kReady);
  char byte = 0;
  EXPECT_EQ(recv(peer.get(), &byte, 1, MSG_DONTWAIT), 0);
}

TEST_F(LoopTest, NoHelloEndsTheBox) {
  const auto lost = event();
  EXPECT_EQ(lost.type, ControlType::kInitLost);
  EXPECT_EQ(lost.reason, static_cast<std::uint32_t>(LostReason::kTimeout));
  EXPECT_EQ(event().type, ControlType::kKillBox);
  EXPECT_EQ(event().type, ControlType::kBye);
}

TEST_F(LoopTest, ForeignControlBytesEndTheSession) {
  greet();
  ASSERT_EQ(::send(control_.get(), "x", 1, 0), 1);
  EXPECT_EQ(event().type, ControlType::kBye);
}

TEST_F(LoopTest, AClientIsServedAndHearsOfTheEndOfInit) {
  greet();
  const UniqueFd near = client();
  ByteQueue out;
  put(out, 6, Ping{77});
  send(near.get(), out);
  // Init's side of the PING, then its death.
  answer_ping();
  init_.reset();
  std::vector<std::pair<Type, std::uint32_t>> heard;
  Frame frame;
  FrameReader from_session(kMaxFrame);
  for (;;) {
    const auto space = from_session.space();
    const ssize_t count = read(near.get(), space.data(), space.size());
    if (count <= 0) break;
    from_session.commit(static_cast<std::size_t>(count));
    while (from_session.peek(frame) == FrameReader::Status::kFrame) {
      heard.emplace_back(static_cast<Type>(frame.header.type), frame.header.id);
      from_session.pop();
    }
  }
  const std::vector<std::pair<Type, std::uint32_t>> expected{
      {Type::kHello, 0}, {Type::kPong, 6}, {Type::kError, 0}};
  EXPECT_EQ(heard, expected);
  EXPECT_EQ(event().type, ControlType::kInitLost);
  EXPECT_EQ(event().type, ControlType::kBye);
}

TEST_F(LoopTest, ActivityIsToldWhenAskedForAndNeverOftenerThanInASteadyStep) {
  using std::chrono::steady_clock;
  greet();
  const UniqueFd near = client();
  ASSERT_TRUE(send_control(control_.get(), {ControlType::kReportActivity}));
  EXPECT_EQ(event().type, ControlType::kIdle);
  // Work that comes and goes as fast as it can, until a second has passed.
  const auto begun = steady_clock::now();
  int pings = 0;
  ByteQueue out;
  for (; steady_clock::now() < begun + std::chrono::seconds(1); ++pings) {
    put(out, static_cast<std::uint32_t>(pings + 1), Ping{1});
    send(near.get(), out);
    answer_ping();
    char answer[4096];
    (void)recv(near.get(), answer, sizeof answer, MSG_DONTWAIT);
  }
  ControlMessage told{ControlType::kStop};
  int messages = 0;
  for (; event_comes(); ++messages) told = event();
  EXPECT_EQ(told.type, ControlType::kIdle);
  EXPECT_GT(pings, 100);
  EXPECT_GE(messages, 1);
  EXPECT_LE(messages, 1 + (steady_clock::now() - begun) / std::chrono::milliseconds(250));
  // One that stays is busy until it ends.
  put(out, 1, Ping{1});
  send(near.get(), out);
  EXPECT_EQ(event().type, ControlType::kBusy);
  answer_ping();
  EXPECT_EQ(event().type, ControlType::kIdle);
}

TEST_F(LoopTest, ActivityIsNobodysUnlessAskedFor) {
  greet();
  const UniqueFd near = client();
  ByteQueue out;
  put(out, 1, Ping{1});
  send(near.get(), out);
  answer_ping();
  ASSERT_TRUE(send_control(control_.get(), {ControlType::kStop}));
  EXPECT_EQ(event().type, ControlType::kBye);
}

}  // namespace
}  // namespace temenos::session
