#include "session/loop.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>
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

struct Files {
  // Without a name: memory with the rules of files.
  explicit Files(int flags = O_APPEND) {
    for (auto& fd : fds) {
      fd.reset(memfd_create("log", MFD_CLOEXEC));
      EXPECT_EQ(fcntl(fd.get(), F_SETFL, flags), 0);
    }
  }
  std::array<int, 2> numbers() const { return {fds[0].get(), fds[1].get()}; }
  std::vector<Type> types(int which) const {
    std::vector<std::uint8_t> bytes(1u << 20);
    const ssize_t size = pread(fds[which].get(), bytes.data(), bytes.size(), 0);
    std::vector<Type> found;
    for (std::size_t at = 0; at + kHeaderSize <= static_cast<std::size_t>(size);) {
      const auto header = get_header(bytes.data() + at);
      found.push_back(static_cast<Type>(header.type));
      at += kHeaderSize + header.length;
    }
    return found;
  }
  std::array<UniqueFd, 2> fds;
};

// Waits for a message of `type` that session sends to init; its id.
std::uint32_t await(int init, FrameReader& reader, Type type) {
  for (;;) {
    Frame frame;
    while (reader.peek(frame) == FrameReader::Status::kFrame) {
      const auto header = frame.header;
      reader.pop();
      if (static_cast<Type>(header.type) == type) return header.id;
    }
    const auto space = reader.space();
    const ssize_t count = read(init, space.data(), space.size());
    if (count <= 0) return 0;
    reader.commit(static_cast<std::size_t>(count));
  }
}

TEST_F(LoopTest, JobsOneAfterAnotherGoToTheirSegments) {
  greet();
  auto [near, far] = pair(SOCK_STREAM);
  ASSERT_TRUE(send_control(control_.get(), {ControlType::kAddClient}, far.get()));
  far.reset();
  FrameReader from_session(kMaxFrame);
  const std::vector<std::uint8_t> output(50'000, 'x');
  ByteQueue out;
  put(out, 0, Hello{});
  send(near.get(), out);
  for (std::uint32_t job = 1; job <= 200; ++job) {
    const Files files;
    ASSERT_TRUE(send_control(control_.get(), {ControlType::kAddJob, 0, job}, files.numbers()));
    put(out, job, Exec{0, 0, 0, 0, "/", {"x"}, {}});
    put(out, job, Detach{job});
    send(near.get(), out);
    const std::uint32_t id = await(init_.get(), from_session, Type::kExec);
    ASSERT_EQ(await(init_.get(), from_session, Type::kCredit), id);
    put(out, id, Started{5});
    put(out, id, Type::kStdout, output);
    put(out, id, Exited{false, 0});
    put(out, id, Done{});
    send(init_.get(), out);
    const auto over = event();
    ASSERT_EQ(over.type, ControlType::kJobOver);
    ASSERT_EQ(over.detail, job);
    ASSERT_EQ(files.types(0), (std::vector<Type>{Type::kJobSegment, Type::kStarted, Type::kStdout,
                                                 Type::kExited, Type::kDone}));
    ASSERT_TRUE(files.types(1).empty());
  }
}

TEST_F(LoopTest, AJobsSegmentsTakeTurns) {
  greet();
  auto [near, far] = pair(SOCK_STREAM);
  ASSERT_TRUE(send_control(control_.get(), {ControlType::kAddClient}, far.get()));
  far.reset();
  const Files files;
  ASSERT_TRUE(
      send_control(control_.get(), {ControlType::kAddJob, kMinSegment, 1}, files.numbers()));
  ByteQueue out;
  put(out, 0, Hello{});
  put(out, 1, Exec{0, 0, 0, 0, "/", {"x"}, {}});
  put(out, 1, Detach{1});
  send(near.get(), out);
  FrameReader from_session(kMaxFrame);
  const std::uint32_t id = await(init_.get(), from_session, Type::kExec);
  put(out, id, Started{5});
  send(init_.get(), out);
  const std::vector<std::uint8_t> output(30'000, 'x');
  for (int i = 0; i < 10; ++i) {
    // Two streams were granted 256 KiB each; a new grant comes with each 128 KiB.
    put(out, id, i % 2 == 0 ? Type::kStdout : Type::kStderr, output);
    send(init_.get(), out);
  }
  init_.reset();
  EXPECT_EQ(event().type, ControlType::kInitLost);
  EXPECT_EQ(event().type, ControlType::kJobOver);
  // Four of 30,012 bytes in each; the third segment has what is left, and the end.
  EXPECT_EQ(files.types(0),
            (std::vector<Type>{Type::kJobSegment, Type::kStdout, Type::kStderr, Type::kError}));
  EXPECT_EQ(files.types(1), (std::vector<Type>{Type::kJobSegment, Type::kStdout, Type::kStderr,
                                               Type::kStdout, Type::kStderr}));
}

// Who could not start a job removes its files, and the next job gets the number.
TEST_F(LoopTest, AJobGivenAgainWritesToItsNewFiles) {
  greet();
  auto [near, far] = pair(SOCK_STREAM);
  ASSERT_TRUE(send_control(control_.get(), {ControlType::kAddClient}, far.get()));
  far.reset();
  const Files removed;
  const Files files;
  ASSERT_TRUE(send_control(control_.get(), {ControlType::kAddJob, 0, 1}, removed.numbers()));
  ASSERT_TRUE(send_control(control_.get(), {ControlType::kAddJob, 0, 1}, files.numbers()));
  ByteQueue out;
  put(out, 0, Hello{});
  put(out, 1, Exec{0, 0, 0, 0, "/", {"x"}, {}});
  put(out, 1, Detach{1});
  send(near.get(), out);
  FrameReader from_session(kMaxFrame);
  put(out, await(init_.get(), from_session, Type::kExec), ErrorReply{Stage::kNotFound, 2});
  send(init_.get(), out);
  EXPECT_EQ(event().type, ControlType::kJobOver);
  EXPECT_EQ(files.types(0), (std::vector<Type>{Type::kJobSegment, Type::kError}));
  EXPECT_TRUE(removed.types(0).empty());
}

// A disk that stands still holds session up, and not init: what that has said meanwhile counts.
TEST_F(LoopTest, ASlowDiskIsNoTreeThatSurvives) {
  greet();
  auto [near, far] = pair(SOCK_STREAM);
  ASSERT_TRUE(send_control(control_.get(), {ControlType::kAddClient}, far.get()));
  far.reset();
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  UniqueFd disk(ends[0]);
  UniqueFd segment(ends[1]);
  ASSERT_EQ(fcntl(segment.get(), F_SETFL, O_APPEND), 0);
  ASSERT_EQ(fcntl(segment.get(), F_SETPIPE_SZ, 4096), 4096);
  const std::array<int, 2> segments{segment.get(), segment.get()};
  ASSERT_TRUE(send_control(control_.get(), {ControlType::kAddJob, 0, 1}, segments));
  ByteQueue out;
  put(out, 0, Hello{});
  put(out, 1, Exec{0, 0, 0, 0, "/", {"x"}, {}});
  put(out, 1, Detach{1});
  put(out, 2, Exec{0, 0, 0, 0, "/", {"x"}, {}});
  send(near.get(), out);
  FrameReader from_session(kMaxFrame);
  const std::uint32_t job = await(init_.get(), from_session, Type::kExec);
  const std::uint32_t other = await(init_.get(), from_session, Type::kExec);
  put(out, other, Started{6});
  send(init_.get(), out);
  put(out, 2, Type::kKill);
  send(near.get(), out);
  ASSERT_EQ(await(init_.get(), from_session, Type::kKill), other);
  put(out, job, Started{5});
  put(out, job, Type::kStdout, std::vector<std::uint8_t>(8'000, 'x'));
  send(init_.get(), out);
  pollfd full{disk.get(), POLLIN, 0};
  ASSERT_EQ(poll(&full, 1, 10'000), 1);
  put(out, other, Exited{true, 9});
  put(out, other, Done{});
  send(init_.get(), out);
  std::this_thread::sleep_for(std::chrono::milliseconds(EngineConfig{}.kill_grace + 300));
  std::thread goes_on([&] {
    std::array<char, 4096> room;
    while (read(disk.get(), room.data(), room.size()) > 0) {
    }
  });
  EXPECT_FALSE(event_comes());
  put(out, job, Exited{false, 0});
  put(out, job, Done{});
  send(init_.get(), out);
  EXPECT_EQ(event().type, ControlType::kJobOver);
  segment.reset();
  goes_on.join();
}

TEST_F(LoopTest, SegmentsThatAreNotForAppendingEndTheSession) {
  greet();
  const Files files(0);
  ASSERT_TRUE(send_control(control_.get(), {ControlType::kAddJob, 0, 1}, files.numbers()));
  EXPECT_EQ(event().type, ControlType::kBye);
}

TEST_F(LoopTest, AJobWithOneSegmentEndsTheSession) {
  greet();
  const Files files;
  ASSERT_TRUE(send_control(control_.get(), {ControlType::kAddJob, 0, 1}, files.numbers()[0]));
  EXPECT_EQ(event().type, ControlType::kBye);
}

}  // namespace
}  // namespace temenos::session
