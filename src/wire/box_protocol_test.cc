#include "wire/box_protocol.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "wire/job_messages.h"

namespace temenos::box_wire {
namespace {

std::vector<std::uint8_t> payload_of(ByteQueue& queue, Type type) {
  std::vector<std::uint8_t> wire;
  iovec part[1];
  while (queue.peek(part) == 1) {
    const auto* from = static_cast<const std::uint8_t*>(part[0].iov_base);
    wire.insert(wire.end(), from, from + part[0].iov_len);
    queue.consume(part[0].iov_len);
  }
  FrameReader reader(wire.size());
  std::copy(wire.begin(), wire.end(), reader.space().begin());
  reader.commit(wire.size());
  std::vector<std::uint8_t> payload;
  Frame frame;
  while (reader.peek(frame) == FrameReader::Status::kFrame) {
    EXPECT_EQ(frame.header.type, static_cast<std::uint16_t>(type));
    payload.insert(payload.end(), frame.payload.begin(), frame.payload.end());
    reader.pop();
  }
  return payload;
}

// Every message: comes back as it went, and neither a shorter nor a longer payload is taken.
template <typename M>
M round_trip(const M& message, Type type, std::vector<std::uint8_t>& keep) {
  ByteQueue queue;
  put(queue, 5, message);
  keep = payload_of(queue, type);
  M back;
  EXPECT_TRUE(decode(keep, back));
  for (std::size_t size = 0; size < keep.size(); ++size) {
    M cut;
    EXPECT_FALSE(decode(Bytes(keep).first(size), cut)) << size;
  }
  auto longer = keep;
  longer.push_back(0);
  M extra;
  EXPECT_FALSE(decode(longer, extra));
  return back;
}

TEST(BoxProtocol, RoundTripsAndRefusesCutAndTrailingBytes) {
  std::vector<std::uint8_t> keep;
  EXPECT_EQ(round_trip(Hello{kMagic, 1, 3}, Type::kHello, keep).features, 3u);
  EXPECT_EQ(round_trip(Ping{42}, Type::kPing, keep).token, 42u);
  EXPECT_EQ(round_trip(Started{77}, Type::kStarted, keep).pid, 77u);
  EXPECT_EQ(round_trip(OutputEof{Stream::kStderr}, Type::kOutputEof, keep).stream, Stream::kStderr);
  EXPECT_EQ(round_trip(Credit{Stream::kStdin, 9}, Type::kCredit, keep).bytes, 9u);
  EXPECT_TRUE(round_trip(Signal{15, true}, Type::kSignal, keep).tree);
  EXPECT_EQ(round_trip(Exited{true, 9, 1, 2, 3}, Type::kExited, keep).max_rss_kb, 3u);
  EXPECT_EQ(round_trip(ErrorReply{Stage::kCwd, 2}, Type::kError, keep).error, 2);
  EXPECT_EQ(round_trip(FileDone{1u << 30}, Type::kFileDone, keep).count, 1u << 30);
  EXPECT_EQ(round_trip(Done{kDoneTruncated, 70, {4, 5}}, Type::kDone, keep).left_running,
            (std::vector<std::uint32_t>{4, 5}));
  EXPECT_EQ(round_trip(Read{1, 2, 300, "/a"}, Type::kRead, keep).path, "/a");
  EXPECT_EQ(round_trip(Write{Write::How::kAppend, 0600, "/b"}, Type::kWrite, keep).mode, 0600u);
  EXPECT_EQ(round_trip(Mkdir{true, 01777, "/m"}, Type::kMkdir, keep).mode, 01777u);
  EXPECT_TRUE(round_trip(Remove{true, "/r"}, Type::kRemove, keep).recursive);
  EXPECT_EQ(round_trip(Resize{50, 132}, Type::kResize, keep).cols, 132);
  EXPECT_EQ(round_trip(Dial{Dial::To::kTcp, 8080, 300}, Type::kDial, keep).port, 8080);
  EXPECT_EQ(round_trip(Dial{Dial::To::kUnix, 0, 300, "/s"}, Type::kDial, keep).path, "/s");
  EXPECT_EQ(round_trip(List{300, "/c"}, Type::kList, keep).path, "/c");
  EXPECT_TRUE(round_trip(Stat{true, "/d"}, Type::kStat, keep).follow);
  const auto stat =
      round_trip(StatReply{FileType::kSymlink, 0777, 1, 2, 3, -4, "to"}, Type::kStatReply, keep);
  EXPECT_EQ(stat.target, "to");
  EXPECT_EQ(stat.mtime_ns, -4);
  const auto exec =
      round_trip(Exec{kExecStdin, 1500, 99, 4096, "/w", {"a", ""}, {"K=V"}}, Type::kExec, keep);
  EXPECT_EQ(exec.argv, (std::vector<std::string_view>{"a", ""}));
  EXPECT_EQ(exec.env, (std::vector<std::string_view>{"K=V"}));
  EXPECT_EQ(exec.output_cap, 99u);
  const auto terminal = round_trip(Exec{kExecStdin | kExecTty, 0, 0, 4096, "/w", {"a"}, {}, 24, 80},
                                   Type::kExec, keep);
  EXPECT_EQ(terminal.rows, 24);
  EXPECT_EQ(terminal.cols, 80);
}

TEST(BoxProtocol, JobMessagesRoundTrip) {
  std::vector<std::uint8_t> keep;
  EXPECT_EQ(round_trip(Detach{kMaxJob}, Type::kDetach, keep).job, kMaxJob);
  EXPECT_EQ(round_trip(JobWait{3, 500}, Type::kJobWait, keep).timeout_ms, 500u);
  const auto signal = round_trip(JobSignal{4, 64, true}, Type::kJobSignal, keep);
  EXPECT_EQ(signal.job, 4u);
  EXPECT_EQ(signal.signal, 64);
  EXPECT_TRUE(signal.tree);
  EXPECT_EQ(round_trip(JobSegment{1u << 30}, Type::kJobSegment, keep).offset, 1u << 30);
  EXPECT_EQ(keep.size() + kHeaderSize, kJobSegmentSize);
  EXPECT_EQ(round_trip(Exec{0, 0, 0, 0, "/", {"a"}, {}}, Type::kExec, keep).window, 0u);
}

template <typename M>
bool accepted(const M& message, Type type) {
  ByteQueue queue;
  put(queue, 5, message);
  const auto payload = payload_of(queue, type);
  M back;
  return decode(payload, back);
}

TEST(BoxProtocol, RefusesValuesOutOfRange) {
  EXPECT_FALSE(accepted(Credit{Stream::kStdout, 0}, Type::kCredit));
  EXPECT_FALSE(accepted(Credit{Stream::kStdout, kWindow + 1}, Type::kCredit));
  EXPECT_FALSE(accepted(Credit{static_cast<Stream>(3), 1}, Type::kCredit));
  EXPECT_FALSE(accepted(Signal{0, false}, Type::kSignal));
  EXPECT_FALSE(accepted(Signal{65, false}, Type::kSignal));
  EXPECT_FALSE(accepted(Exited{true, 0}, Type::kExited));
  EXPECT_FALSE(accepted(Started{0}, Type::kStarted));
  EXPECT_FALSE(accepted(OutputEof{Stream::kStdin}, Type::kOutputEof));
  EXPECT_FALSE(accepted(ErrorReply{static_cast<Stage>(0), 1}, Type::kError));
  EXPECT_FALSE(accepted(ErrorReply{Stage::kFile, 4096}, Type::kError));
  EXPECT_FALSE(accepted(Done{16, 0, {}}, Type::kDone));
  EXPECT_FALSE(accepted(Done{0, 1, {1, 2}}, Type::kDone));
  EXPECT_FALSE(accepted(Done{0, 99, std::vector<std::uint32_t>(65, 1)}, Type::kDone));
  EXPECT_FALSE(accepted(Read{0, 1, 1, "relative"}, Type::kRead));
  EXPECT_FALSE(accepted(Read{0, 1, 1, ""}, Type::kRead));
  EXPECT_FALSE(accepted(Read{0, 1, 1, std::string_view("/a\0b", 4)}, Type::kRead));
  EXPECT_FALSE(accepted(Read{~std::uint64_t{0}, 1, 1, "/a"}, Type::kRead));
  EXPECT_FALSE(accepted(Write{Write::How::kReplace, 010000, "/a"}, Type::kWrite));
  EXPECT_FALSE(accepted(Stat{false, std::string(4096, '/')}, Type::kStat));
  EXPECT_FALSE(accepted(StatReply{FileType::kRegular, 0, 0, 0, 0, 0, "x"}, Type::kStatReply));
  EXPECT_FALSE(accepted(Exec{0, 0, 0, 1, "/", {}, {}}, Type::kExec));
  EXPECT_FALSE(accepted(Exec{4, 0, 0, 1, "/", {"a"}, {}}, Type::kExec));
  EXPECT_FALSE(accepted(Exec{kExecTty, 0, 0, 1, "/", {"a"}, {}}, Type::kExec));
  EXPECT_FALSE(accepted(Exec{kExecStdin, 0, 0, 1, "/", {"a"}, {}, 24, 80}, Type::kExec));
  EXPECT_FALSE(accepted(Mkdir{false, 010000, "/a"}, Type::kMkdir));
  EXPECT_FALSE(accepted(Remove{false, "a"}, Type::kRemove));
  EXPECT_FALSE(accepted(Dial{Dial::To::kTcp, 0}, Type::kDial));
  EXPECT_FALSE(accepted(Dial{Dial::To::kTcp, 1, kWindow, "/s"}, Type::kDial));
  EXPECT_FALSE(accepted(Dial{Dial::To::kTcp, 1, 0}, Type::kDial));
  EXPECT_FALSE(accepted(Dial{Dial::To::kUnix, 1, kWindow, "/s"}, Type::kDial));
  EXPECT_FALSE(accepted(Dial{Dial::To::kUnix, 0, kWindow, ""}, Type::kDial));
  EXPECT_FALSE(accepted(Dial{static_cast<Dial::To>(0), 1}, Type::kDial));
  EXPECT_FALSE(accepted(Dial{static_cast<Dial::To>(3), 1}, Type::kDial));
  EXPECT_TRUE(accepted(Dial{Dial::To::kUnix, 0, 1, "/" + std::string(106, 's')}, Type::kDial));
  EXPECT_FALSE(accepted(Dial{Dial::To::kUnix, 0, 1, "/" + std::string(107, 's')}, Type::kDial));
  EXPECT_FALSE(accepted(Exec{0, 0, 0, kWindow + 1, "/", {"a"}, {}}, Type::kExec));
  EXPECT_FALSE(accepted(Detach{0}, Type::kDetach));
  EXPECT_FALSE(accepted(Detach{kMaxJob + 1}, Type::kDetach));
  EXPECT_FALSE(accepted(JobWait{0, 1}, Type::kJobWait));
  EXPECT_FALSE(accepted(JobSignal{1, 65, false}, Type::kJobSignal));
  EXPECT_FALSE(accepted(JobSegment{~std::uint64_t{0}}, Type::kJobSegment));
  const std::string big(3u << 20, 'x');
  EXPECT_FALSE(accepted(Exec{0, 0, 0, 1, "/", {big}, {}}, Type::kExec));
}

TEST(BoxProtocol, ExecGoesOnWithAnotherWindow) {
  const std::string long_argument(200000, 'y');
  ByteQueue queue;
  put(queue, 1, Exec{kExecStdin, 7, 8, kWindow, "/w", {"cmd", long_argument}, {"A=B"}});
  const auto payload = payload_of(queue, Type::kExec);
  Exec checked;
  ASSERT_TRUE(check_exec(payload, checked));
  EXPECT_TRUE(checked.argv.empty());
  put_exec_again(queue, 2, payload, 1000);
  const auto again = payload_of(queue, Type::kExec);
  Exec exec;
  ASSERT_TRUE(decode(again, exec));
  EXPECT_EQ(exec.window, 1000u);
  EXPECT_EQ(exec.timeout_ms, 7u);
  ASSERT_EQ(exec.argv.size(), 2u);
  EXPECT_EQ(exec.argv[1], long_argument);
}

TEST(BoxProtocol, EntriesAreTakenWholeOrNot) {
  std::uint8_t room[kMaxEntry];
  const std::string longest(kMaxName, 'n');
  const std::size_t size = put_entry(room, {FileType::kRegular, 0644, 12, 34, longest});
  EXPECT_EQ(size, kMaxEntry);
  Bytes bytes(room, size);
  Entry entry;
  ASSERT_TRUE(take_entry(bytes, entry));
  EXPECT_EQ(entry.name, longest);
  EXPECT_TRUE(bytes.empty());
  for (std::size_t cut = 0; cut < size; ++cut) {
    Bytes part(room, cut);
    EXPECT_FALSE(take_entry(part, entry)) << cut;
  }
  for (const std::string_view bad :
       {std::string_view(".."), std::string_view("."), std::string_view(""),
        std::string_view("a/b"), std::string_view("a\0b", 3)}) {
    const std::size_t bad_size = put_entry(room, {FileType::kRegular, 0644, 12, 34, bad});
    Bytes part(room, bad_size);
    EXPECT_FALSE(take_entry(part, entry)) << bad;
  }
}

}  // namespace
}  // namespace temenos::box_wire
