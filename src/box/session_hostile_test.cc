// The real temenos-session and an init of our own making.
#include <gmock/gmock.h>

#include <algorithm>

#include "testing/session_fixture.h"
#include "wire/box_frame.h"
#include "wire/box_protocol.h"
#include "wire/byte_queue.h"

namespace temenos {
namespace {

using session::ControlMessage;
using session::ControlType;
using temenos::testing::kMemoryKb;
using temenos::testing::Pair;
using temenos::testing::socket_pair;
using temenos::testing::start_program;
using temenos::testing::status_kb;
using ::testing::ElementsAre;

void send_all(int fd, ByteQueue& out) {
  while (!out.empty()) {
    iovec parts[16];
    const auto count = static_cast<int>(out.peek(parts));
    const ssize_t sent = writev(fd, parts, count);
    if (sent <= 0) return;
    out.consume(static_cast<std::size_t>(sent));
  }
}

// Says as much as it may, and then more, to clients that do not read.
class FloodingInit : public ::testing::Test {
 protected:
  static constexpr std::uint32_t kExecs = 64;  // of each client

  void SetUp() override {
    Pair init = socket_pair(SOCK_STREAM);
    Pair control = socket_pair(SOCK_SEQPACKET);
    session_pid_ = start_program("temenos-session", {{init.one.get(), session::kInitFd},
                                                     {control.two.get(), session::kControlFd}});
    socket_ = std::move(init.two);
    control_ = std::move(control.one);
    put(out_, 0, box_wire::Hello{});
    send_all(socket_.get(), out_);
  }
  void TearDown() override {
    control_.reset();
    EXPECT_EQ(waitpid(session_pid_, nullptr, 0), session_pid_);
  }

  void add_client() {
    Pair pair = socket_pair(SOCK_STREAM);
    ASSERT_TRUE(session::send_control(control_.get(), {ControlType::kAddClient}, pair.two.get()));
    ByteQueue requests;
    put(requests, 0, box_wire::Hello{});
    for (std::uint32_t id = 1; id <= kExecs; ++id) {
      put(requests, id, box_wire::Exec{0, 0, 0, box_wire::kWindow, "/", {"x"}, {}});
    }
    send_all(pair.one.get(), requests);
    clients_.push_back(std::move(pair.one));
  }

  // As many bytes as `credit` allows.
  void spend(std::uint32_t id, box_wire::Stream stream, std::size_t credit) {
    const auto type =
        stream == box_wire::Stream::kStdout ? box_wire::Type::kStdout : box_wire::Type::kStderr;
    while (credit > box_wire::kHeaderSize) {
      const std::size_t size = std::min(credit - box_wire::kHeaderSize, bytes_.size());
      put(out_, id, type, {bytes_.data(), size});
      credit -= box_wire::kHeaderSize + size;
      sent_ += size;
    }
  }

  void answer(const box_wire::Frame& frame) {
    box_wire::Exec exec;
    box_wire::Credit credit;
    const auto type = static_cast<box_wire::Type>(frame.header.type);
    if (type == box_wire::Type::kExec && decode(frame.payload, exec)) {
      ++execs_;
      some_id_ = frame.header.id;
      put(out_, some_id_, box_wire::Started{1});
      spend(some_id_, box_wire::Stream::kStdout, exec.window);
      spend(some_id_, box_wire::Stream::kStderr, exec.window);
    } else if (type == box_wire::Type::kCredit && decode(frame.payload, credit)) {
      spend(frame.header.id, credit.stream, credit.bytes);
    }
  }

  // Until session has asked for everything and grants nothing more.
  void answer_all(std::size_t execs) {
    box_wire::FrameReader reader(box_wire::kMaxFrame);
    pollfd entry{socket_.get(), POLLIN, 0};
    while (poll(&entry, 1, execs_ < execs ? 30'000 : 700) == 1) {
      const auto space = reader.space();
      const ssize_t count = read(socket_.get(), space.data(), space.size());
      ASSERT_GT(count, 0);
      reader.commit(static_cast<std::size_t>(count));
      box_wire::Frame frame;
      while (reader.peek(frame) == box_wire::FrameReader::Status::kFrame) {
        answer(frame);
        reader.pop();
      }
      send_all(socket_.get(), out_);
    }
    ASSERT_EQ(execs_, execs);
  }

  pid_t session_pid_ = -1;
  UniqueFd socket_, control_;
  std::vector<UniqueFd> clients_;
  ByteQueue out_;
  const std::vector<std::uint8_t> bytes_ =
      std::vector<std::uint8_t>(box_wire::kMaxPayload, std::uint8_t{'x'});
  std::size_t sent_ = 0;
  std::size_t execs_ = 0;
  std::uint32_t some_id_ = 0;
};

TEST_F(FloodingInit, StaysInLittleMemoryAndEndsTheBoxWithOneByteTooMany) {
  for (int i = 0; i < 16; ++i) add_client();
  answer_all(16 * kExecs);
  EXPECT_GT(sent_, 1u << 20);
  EXPECT_LT(status_kb(session_pid_, "VmHWM"), kMemoryKb);
  put(out_, some_id_, box_wire::Type::kStdout, bytes_);
  send_all(socket_.get(), out_);
  std::vector<ControlType> seen;
  ControlMessage message;
  while (recv(control_.get(), &message, sizeof message, 0) == sizeof message) {
    seen.push_back(message.type);
    if (message.type == ControlType::kInitLost) {
      EXPECT_EQ(message.detail, static_cast<std::uint32_t>(session::Violation::kBeyondCredit));
    }
  }
  EXPECT_THAT(seen, ElementsAre(ControlType::kJailed, ControlType::kReady, ControlType::kInitLost,
                                ControlType::kKillBox, ControlType::kBye));
}

}  // namespace
}  // namespace temenos
