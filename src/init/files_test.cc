#include "init/files.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace temenos::init {
namespace {

using namespace box_wire;

struct Heard {
  Type type;
  std::vector<std::uint8_t> payload;
};

class FilesTest : public testing::Test {
 protected:
  void SetUp() override {
    char pattern[] = "/tmp/temenos-files-XXXXXX";
    ASSERT_NE(mkdtemp(pattern), nullptr);
    dir_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  std::vector<Heard> heard() {
    std::vector<std::uint8_t> wire;
    iovec part[1];
    while (out_.peek(part) == 1) {
      const auto* from = static_cast<const std::uint8_t*>(part[0].iov_base);
      wire.insert(wire.end(), from, from + part[0].iov_len);
      out_.consume(part[0].iov_len);
    }
    FrameReader reader(wire.size());
    std::copy(wire.begin(), wire.end(), reader.space().begin());
    reader.commit(wire.size());
    std::vector<Heard> messages;
    Frame frame;
    while (reader.peek(frame) == FrameReader::Status::kFrame) {
      messages.push_back(
          {static_cast<Type>(frame.header.type), {frame.payload.begin(), frame.payload.end()}});
      reader.pop();
    }
    return messages;
  }
  std::vector<std::string> names() {
    std::vector<std::string> out;
    for (const auto& entry : std::filesystem::directory_iterator(dir_))
      out.push_back(entry.path().filename());
    return out;
  }
  static Bytes bytes(std::string_view text) {
    return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
  }

  std::string dir_;
  ByteQueue out_;
};

TEST_F(FilesTest, AReadStopsAtItsCreditAndGoesOnWithMore) {
  std::ofstream(dir_ + "/f") << std::string(5'000, 'a');
  const std::string path = dir_ + "/f";
  auto job = FileJob::read(1, Read{0, ~std::uint64_t{0}, 1'012, path}, out_);
  ASSERT_NE(job, nullptr);
  EXPECT_FALSE(job->runnable());
  auto messages = heard();
  ASSERT_EQ(messages.size(), 1u);
  EXPECT_EQ(messages[0].payload.size(), 1'000u);
  ASSERT_TRUE(job->credit(Credit{Stream::kStdout, 100'000}));
  while (!job->step()) {
  }
  messages = heard();
  ASSERT_EQ(messages.size(), 2u);
  EXPECT_EQ(messages[0].payload.size(), 4'000u);
  FileDone done;
  ASSERT_TRUE(decode(messages[1].payload, done));
  EXPECT_EQ(done.count, 5'000u);
  EXPECT_FALSE(job->credit(Credit{Stream::kStdout, kWindow}));  // beyond the window
  EXPECT_FALSE(job->credit(Credit{Stream::kStdin, 1}));
}

TEST_F(FilesTest, AnUnfinishedReplaceLeavesTheOldFileAndNothingElse) {
  std::ofstream(dir_ + "/f") << "old";
  const std::string path = dir_ + "/f";
  {
    auto job = FileJob::write(1, Write{Write::How::kReplace, kKeepMode, path}, out_);
    ASSERT_NE(job, nullptr);
    bool over = false;
    EXPECT_TRUE(job->body(bytes("half"), over));
    EXPECT_FALSE(over);
    EXPECT_EQ(names().size(), 2u);
    job->cancel();
  }
  EXPECT_EQ(names(), std::vector<std::string>{"f"});
  std::string text;
  std::ifstream(path) >> text;
  EXPECT_EQ(text, "old");
  const auto messages = heard();
  ASSERT_EQ(messages.size(), 1u);
  ErrorReply error;
  ASSERT_TRUE(decode(messages[0].payload, error));
  EXPECT_EQ(error.stage, Stage::kCancelled);
}

TEST_F(FilesTest, CreateLosesARaceWithoutHarm) {
  const std::string path = dir_ + "/f";
  auto job = FileJob::write(1, Write{Write::How::kCreate, 0600, path}, out_);
  ASSERT_NE(job, nullptr);
  std::ofstream(path) << "theirs";
  EXPECT_TRUE(job->body_end());
  job.reset();
  const auto messages = heard();
  ASSERT_EQ(messages.size(), 1u);
  ErrorReply error;
  ASSERT_TRUE(decode(messages[0].payload, error));
  EXPECT_EQ(error.error, EEXIST);
  EXPECT_EQ(names(), std::vector<std::string>{"f"});
}

TEST_F(FilesTest, AWriteGivesItsCreditBackInSteps) {
  const std::string path = dir_ + "/f";
  auto job = FileJob::write(1, Write{Write::How::kReplace, 0600, path}, out_);
  ASSERT_NE(job, nullptr);
  const std::string block(60'000, 'b');
  bool over = false;
  ASSERT_TRUE(job->body(bytes(block), over));
  EXPECT_TRUE(heard().empty());
  ASSERT_TRUE(job->body(bytes(block), over));
  auto messages = heard();
  ASSERT_EQ(messages.size(), 1u);
  Credit credit;
  ASSERT_TRUE(decode(messages[0].payload, credit));
  EXPECT_EQ(credit.bytes, 2 * (60'000u + kHeaderSize));
  ASSERT_TRUE(job->body_end());
  struct stat info{};
  ASSERT_EQ(stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_size, 120'000);
  EXPECT_EQ(info.st_mode & 07777, 0600u);
}

TEST_F(FilesTest, DirectoriesAndDevicesAreNoTargets) {
  for (const std::string& path :
       {dir_, std::string("/"), std::string("/tmp/.."), std::string("/dev/null")}) {
    EXPECT_EQ(FileJob::write(1, Write{Write::How::kReplace, kKeepMode, path}, out_), nullptr)
        << path;
    EXPECT_EQ(heard().at(0).type, Type::kError);
  }
  EXPECT_EQ(FileJob::read(1, Read{0, 1, kWindow, "/dev/zero"}, out_), nullptr);
  EXPECT_EQ(heard().at(0).type, Type::kError);
}

TEST_F(FilesTest, AListOfSmallCreditHoldsWholeEntries) {
  for (int i = 0; i < 10; ++i)
    std::ofstream(dir_ + "/" + std::string(200, 'n') + std::to_string(i));
  auto job = FileJob::list(1, List{600, dir_}, out_);
  ASSERT_NE(job, nullptr);
  std::size_t entries = 0;
  bool over = false;
  while (!over) {
    ASSERT_TRUE(job->runnable());
    over = job->step();
    for (const auto& message : heard()) {
      if (message.type != Type::kStdout) continue;
      Bytes rest(message.payload);
      Entry entry;
      while (!rest.empty()) {
        ASSERT_TRUE(take_entry(rest, entry));
        EXPECT_EQ(entry.type, FileType::kRegular);
        ++entries;
      }
      ASSERT_TRUE(over || job->credit(Credit{
                              Stream::kStdout,
                              static_cast<std::uint32_t>(kHeaderSize + message.payload.size())}));
    }
  }
  EXPECT_EQ(entries, 10u);
}

}  // namespace
}  // namespace temenos::init
