// Directories, removals and writes that are given up, with the real programs. What a client cannot
// be made to say is said by hand.
#include <gmock/gmock.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "testing/session_fixture.h"
#include "wire/box_protocol.h"

namespace temenos {
namespace {

using temenos::testing::Pair;
using temenos::testing::socket_pair;
using namespace std::chrono_literals;
namespace fs = std::filesystem;
using box_wire::Type;

class SessionFilesTest : public temenos::testing::SessionTest {
 protected:
  struct Heard {
    Type type;
    std::uint32_t id;
    std::vector<std::uint8_t> payload;
  };
  UniqueFd by_hand() {
    Pair pair = socket_pair(SOCK_STREAM);
    EXPECT_TRUE(
        session::send_control(control_.get(), {session::ControlType::kAddClient}, pair.two.get()));
    return std::move(pair.one);
  }
  static void send(int fd, const ByteQueue& queue) {
    iovec parts[16];
    const auto count = static_cast<int>(queue.peek(parts));
    EXPECT_EQ(writev(fd, parts, count), static_cast<ssize_t>(queue.size()));
  }
  // The next `count` messages.
  static std::vector<Heard> hear(int fd, std::size_t count) {
    box_wire::FrameReader reader(2 * box_wire::kMaxFrame);
    std::vector<Heard> heard;
    while (heard.size() < count) {
      const auto space = reader.space();
      const ssize_t got = recv(fd, space.data(), space.size(), 0);
      if (got <= 0) break;
      reader.commit(static_cast<std::size_t>(got));
      box_wire::Frame frame;
      while (reader.peek(frame) == box_wire::FrameReader::Status::kFrame) {
        heard.push_back({static_cast<Type>(frame.header.type),
                         frame.header.id,
                         {frame.payload.begin(), frame.payload.end()}});
        reader.pop();
      }
    }
    return heard;
  }
  void make_tree(const std::string& name) const {
    for (int i = 0; i < 20; ++i) {
      const std::string below = dir_ + "/" + name + "/" + std::to_string(i);
      fs::create_directories(below);
      for (int j = 0; j < 20; ++j) std::ofstream(below + "/" + std::to_string(j)) << i;
    }
  }
};

TEST_F(SessionFilesTest, DirectoriesAreMadeAndRemoved) {
  auto client = connect();
  EXPECT_EQ(client.mkdir(dir_ + "/a").value_or(false), true);
  EXPECT_EQ(client.mkdir(dir_ + "/a").error().sys_errno, EEXIST);
  EXPECT_EQ(client.mkdir(dir_ + "/a/b/c", 0700, true).value_or(false), true);
  EXPECT_EQ(client.mkdir(dir_ + "/a/b/c", 0700, true).value_or(true), false);
  EXPECT_EQ(client.mkdir(dir_ + "/x", 010000).error().code, Code::kInvalidArgument);
  EXPECT_EQ(client.mkdir("x").error().code, Code::kInvalidArgument);
  EXPECT_EQ(client.remove(dir_ + "/a").error().sys_errno, ENOTEMPTY);
  EXPECT_EQ(client.remove(dir_ + "/a", true).value_or(0), 3u);
  EXPECT_EQ(client.remove(dir_ + "/a", true).error().sys_errno, ENOENT);
  EXPECT_EQ(client.remove("/", true).error().sys_errno, EBUSY);
  make_tree("tree");
  EXPECT_EQ(client.remove(dir_ + "/tree", true).value_or(0), 421u);
  EXPECT_TRUE(client.ping());
}

TEST_F(SessionFilesTest, ARemovalLetsOthersGoFirstAndCanBeCancelled) {
  make_tree("kept");
  make_tree("gone");
  const UniqueFd fd = by_hand();
  ByteQueue out;
  put(out, 0, box_wire::Hello{});
  // All at once: init takes the messages before it goes on with what it has begun.
  put(out, 1, box_wire::Remove{true, dir_ + "/kept"});
  put(out, 1, Type::kKill);
  put(out, 2, box_wire::Remove{true, dir_ + "/gone"});
  put(out, 3, box_wire::Ping{9});
  send(fd.get(), out);
  const auto heard = hear(fd.get(), 4);
  ASSERT_EQ(heard.size(), 4u);
  EXPECT_EQ(heard[0].type, Type::kHello);
  box_wire::ErrorReply reply;
  ASSERT_TRUE(heard[1].type == Type::kError && decode(heard[1].payload, reply));
  EXPECT_EQ(heard[1].id, 1u);
  EXPECT_EQ(reply.stage, box_wire::Stage::kCancelled);
  EXPECT_EQ(heard[2].type, Type::kPong);
  box_wire::FileDone done;
  ASSERT_TRUE(heard[3].type == Type::kFileDone && decode(heard[3].payload, done));
  EXPECT_EQ(done.count, 421u);
  EXPECT_TRUE(fs::exists(dir_ + "/kept/0/0"));
  EXPECT_FALSE(fs::exists(dir_ + "/gone"));
}

TEST_F(SessionFilesTest, AWriteThatIsGivenUpLeavesTheOldFileAndNothingElse) {
  auto watcher = connect();
  const std::string target = dir_ + "/file";
  ASSERT_TRUE(watcher.write_file(target, "old", {.mode = 0640}));
  for (const bool killed : {true, false}) {
    UniqueFd fd = by_hand();
    ByteQueue out;
    put(out, 0, box_wire::Hello{});
    put(out, 1, box_wire::Write{box_wire::Write::How::kReplace, box_wire::kKeepMode, target});
    const std::string half = "half of the new";
    put(out, 1, Type::kStdin,
        box_wire::Bytes(reinterpret_cast<const std::uint8_t*>(half.data()), half.size()));
    send(fd.get(), out);
    ExecRequest request = shell("until ls -A " + dir_ + " | grep -q temenos; do sleep 0.01; done");
    request.timeout = 20s;
    auto seen = watcher.exec(request);
    ASSERT_TRUE(seen && !seen->timed_out);
    if (killed) {
      out.clear();
      put(out, 1, Type::kKill);
      send(fd.get(), out);
      EXPECT_EQ(hear(fd.get(), 2).back().type, Type::kError);
    } else {
      fd.reset();
    }
    request = shell("while ls -A " + dir_ + " | grep -q temenos; do sleep 0.01; done");
    request.timeout = 20s;
    seen = watcher.exec(request);
    ASSERT_TRUE(seen);
    EXPECT_FALSE(seen->timed_out);
    EXPECT_EQ(watcher.read_file(target, 100).value_or(""), "old");
  }
  // Replaced as a whole, mode and owner stay.
  if (geteuid() == 0) ASSERT_EQ(chown(target.c_str(), 1234, 1235), 0);
  ASSERT_TRUE(watcher.write_file(target, "new"));
  struct stat info{};
  ASSERT_EQ(stat(target.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0640u);
  if (geteuid() == 0) EXPECT_TRUE(info.st_uid == 1234 && info.st_gid == 1235);
  EXPECT_EQ(watcher.read_file(target, 100).value_or(""), "new");
}

}  // namespace
}  // namespace temenos
