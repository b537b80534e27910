// The project is the host's own directory while the box runs: what one side has done the other one
// sees with its next system call. Nothing here waits or asks twice.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>

#include "tests/integration/program.h"

namespace temenos::testing {
namespace {

namespace fs = std::filesystem;

// Answers each line that is a Python expression with its value, or the name of its exception.
constexpr const char* kAnswers = R"(
import mmap, os, sys
for line in sys.stdin:
    try:
        try:
            value = eval(compile(line.strip(), 'asked', 'eval'), globals())
        except SyntaxError:
            value = exec(line.strip(), globals())
    except Exception as error:
        value = type(error).__name__
    print(value, flush=True)
)";

class LiveProjectTest : public IntegrationTest, public ::testing::WithParamInterface<std::string> {
 protected:
  void SetUp() override {
    const std::vector<std::string> words{
        temenos_program(), "run",   "--no-net", "-i", "--platform", GetParam(), "--write",
        project_,          "--cwd", project_,   "--", "python3",    "-c",       kAnswers};
    box_ = std::make_unique<Program>(host_, words);
    ASSERT_EQ(ask("'up'"), "up");
  }

  void TearDown() override {
    box_.reset();
    IntegrationTest::TearDown();
  }

  // What the box answers; "(nothing)" when it does not.
  std::string ask(const std::string& question) {
    const std::string line = question + "\n";
    if (write(box_->in(), line.data(), line.size()) != static_cast<ssize_t>(line.size())) {
      return "(nothing)";
    }
    std::string answer;
    pollfd fd{box_->out(), POLLIN, 0};
    while (poll(&fd, 1, 60'000) == 1) {
      char byte;
      if (read(box_->out(), &byte, 1) != 1) break;
      if (byte == '\n') return answer;
      answer += byte;
    }
    ADD_FAILURE() << "no answer to " << question << ": " << box_->finish(1).err;
    return "(nothing)";
  }

  void end() {
    box_->close_in();
    const auto result = box_->finish();
    EXPECT_EQ(result.status, 0) << result.err;
  }

  std::string at(const std::string& name) const { return project_ + "/" + name; }
  // In place, as an editor without a temporary file writes.
  void overwrite(const std::string& name, const std::string& text) const {
    std::ofstream out(at(name), std::ios::in | std::ios::out);
    out << text;
  }
  void append(const std::string& name, const std::string& text) const {
    std::ofstream(at(name), std::ios::app) << text;
  }
  void make(const std::string& name, const std::string& text) const {
    std::ofstream(at(name)) << text;
  }
  std::string content(const std::string& name) const {
    std::ifstream in(at(name));
    std::stringstream out;
    out << in.rdbuf();
    return out.str();
  }

  const std::string project_ = host_.dir("project");
  std::unique_ptr<Program> box_;
};
INSTANTIATE_TEST_SUITE_P(Each, LiveProjectTest, ::testing::ValuesIn(platforms()),
                         [](const auto& info) { return info.param; });

TEST_P(LiveProjectTest, TheBoxSeesWhatTheHostWrites) {
  make("f", "one two\n");
  ASSERT_EQ(ask("f = open('f')"), "None");
  EXPECT_EQ(ask("f.read().strip()"), "one two");
  EXPECT_EQ(ask("os.stat('f').st_size"), "8");

  overwrite("f", "ONE");
  EXPECT_EQ(ask("(f.seek(0), f.read().strip())[1]"), "ONE two") << "through an open file";
  EXPECT_EQ(ask("open('f').read().strip()"), "ONE two") << "opened again";

  append("f", "three\n");
  EXPECT_EQ(ask("os.stat('f').st_size, os.fstat(f.fileno()).st_size"), "(14, 14)");
  EXPECT_EQ(ask("(f.seek(0), f.read().split())[1]"), "['ONE', 'two', 'three']");

  ASSERT_EQ(truncate(at("f").c_str(), 3), 0);
  EXPECT_EQ(ask("os.stat('f').st_size, os.fstat(f.fileno()).st_size"), "(3, 3)");
  EXPECT_EQ(ask("(f.seek(0), f.read())[1]"), "ONE");

  ASSERT_EQ(chmod(at("f").c_str(), 0751), 0);
  EXPECT_EQ(ask("oct(os.stat('f').st_mode & 0o777), oct(os.fstat(f.fileno()).st_mode & 0o777)"),
            "('0o751', '0o751')");
  const timespec times[2] = {{1, 0}, {1'000'000'000, 5}};
  ASSERT_EQ(utimensat(AT_FDCWD, at("f").c_str(), times, 0), 0);
  EXPECT_EQ(ask("os.stat('f').st_mtime_ns"), "1000000000000000005");

  // As most editors save: what is open stays the old file, the name is the new one.
  make("f.new", "replaced\n");
  fs::rename(at("f.new"), at("f"));
  EXPECT_EQ(ask("open('f').read().strip()"), "replaced");
  EXPECT_EQ(ask("(f.seek(0), f.read())[1]"), "ONE");
  EXPECT_EQ(ask("os.path.exists('f.new')"), "False");
  end();
}

TEST_P(LiveProjectTest, TheBoxSeesTheHostsChangesThroughAMapping) {
  make("m", std::string(3 * 4096, 'a'));
  ASSERT_EQ(ask("f = open('m', 'r+'); m = mmap.mmap(f.fileno(), 0)"), "None");
  EXPECT_EQ(ask("len(m), m[0:2], m[8192:8194]"), "(12288, b'aa', b'aa')");
  overwrite("m", "bb");
  EXPECT_EQ(ask("m[0:2]"), "b'bb'") << "a page that had been read";
  append("m", std::string(4096, 'c'));
  EXPECT_EQ(ask("mmap.mmap(f.fileno(), 0)[12288:12290]"), "b'cc'");
  // And what the box writes to its mapping is in the host's page cache: no msync is needed.
  EXPECT_EQ(ask("m[4096:4098] = b'dd'"), "None");
  EXPECT_EQ(content("m").substr(4094, 4), "aadd");

  const UniqueFd fd(open(at("m").c_str(), O_RDWR | O_CLOEXEC));
  void* map = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  ASSERT_NE(map, MAP_FAILED);
  auto* bytes = static_cast<volatile char*>(map);
  bytes[0] = 'e';
  EXPECT_EQ(ask("m[0:2]"), "b'eb'");
  EXPECT_EQ(ask("m[1:2] = b'f'"), "None");
  EXPECT_EQ(bytes[1], 'f');
  munmap(map, 4096);
  end();
}

TEST_P(LiveProjectTest, TheBoxSeesNamesComeAndGo) {
  make("old", "");
  ASSERT_EQ(ask("sorted(os.listdir('.'))"), "['old']");
  // Names that the box has looked for and not found.
  ASSERT_EQ(ask("[os.path.exists(n) for n in ('new', 'sub', 'sub/x', 'link')]"),
            "[False, False, False, False]");
  ASSERT_EQ(ask("d = os.open('.', os.O_RDONLY)"), "None");

  make("new", "n");
  EXPECT_EQ(ask("sorted(os.listdir('.')), sorted(os.listdir(d))"),
            "(['new', 'old'], ['new', 'old'])");
  EXPECT_EQ(ask("open('new').read()"), "n");

  host_.dir("project/sub");
  make("sub/x", "x");
  EXPECT_EQ(ask("os.listdir('sub'), open('sub/x').read()"), "(['x'], 'x')");
  fs::create_symlink("sub/x", at("link"));
  EXPECT_EQ(ask("os.readlink('link'), open('link').read()"), "('sub/x', 'x')");
  fs::remove(at("link"));
  fs::create_symlink("new", at("link"));
  EXPECT_EQ(ask("os.readlink('link'), open('link').read()"), "('new', 'n')");

  fs::remove(at("old"));
  EXPECT_EQ(ask("os.path.exists('old'), 'old' in os.listdir(d)"), "(False, False)");
  EXPECT_EQ(ask("open('old')"), "FileNotFoundError");
  host_.dir("project/old");
  EXPECT_EQ(ask("os.path.isdir('old'), os.listdir('old')"), "(True, [])") << "a file became one";

  // A directory that is moved takes all in it along; the old path is gone.
  fs::rename(at("sub"), at("moved"));
  EXPECT_EQ(ask("os.path.exists('sub/x'), open('moved/x').read()"), "(False, 'x')");
  fs::remove_all(at("moved"));
  EXPECT_EQ(ask("os.path.exists('moved'), sorted(os.listdir('.'))"),
            "(False, ['link', 'new', 'old'])");
  host_.dir("project/moved");
  make("moved/y", "y");
  EXPECT_EQ(ask("os.listdir('moved'), open('moved/y').read()"), "(['y'], 'y')") << "made again";
  fs::create_hard_link(at("new"), at("hard"));
  EXPECT_EQ(ask("os.stat('new').st_nlink, os.path.samefile('new', 'hard')"), "(2, True)");
  end();
}

TEST_P(LiveProjectTest, TheHostSeesWhatTheBoxDoes) {
  make("f", "host");
  const UniqueFd open_before(open(at("f").c_str(), O_RDONLY | O_CLOEXEC));
  EXPECT_EQ(ask("o = open('f', 'r+', buffering=1)"), "None");
  EXPECT_EQ(ask("o.write('box\\n')"), "4");
  EXPECT_EQ(content("f"), "box\n");
  EXPECT_EQ(ask("o.write('more\\n')"), "5");
  EXPECT_EQ(fs::file_size(at("f")), 9u);
  EXPECT_EQ(ask("o.truncate(3)"), "3");
  EXPECT_EQ(content("f"), "box");
  char bytes[8] = {};
  EXPECT_EQ(pread(open_before.get(), bytes, sizeof bytes, 0), 3) << "the same file, not a copy";

  EXPECT_EQ(ask("os.makedirs('a/b'), open('a/b/c', 'w').close()"), "(None, None)");
  EXPECT_TRUE(fs::is_regular_file(at("a/b/c")));
  EXPECT_EQ(ask("os.symlink('a/b/c', 'l'), os.link('f', 'h')"), "(None, None)");
  EXPECT_EQ(fs::read_symlink(at("l")), "a/b/c");
  EXPECT_EQ(fs::hard_link_count(at("f")), 2u);
  EXPECT_EQ(ask("os.rename('a', 'z'), os.unlink('l')"), "(None, None)");
  EXPECT_TRUE(fs::exists(at("z/b/c")));
  EXPECT_FALSE(fs::exists(at("a")));
  EXPECT_FALSE(fs::is_symlink(at("l")));
  EXPECT_EQ(ask("open('t', 'w').write('new')"), "3");
  EXPECT_EQ(ask("os.rename('t', 'f')"), "None");
  EXPECT_EQ(content("f"), "new");
  EXPECT_EQ(ask("os.chmod('f', 0o700), os.utime('f', ns=(7, 10**18))"), "(None, None)");
  struct stat st{};
  ASSERT_EQ(stat(at("f").c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 0777, 0700u);
  EXPECT_EQ(st.st_mtim.tv_sec, 1'000'000'000);
  EXPECT_EQ(st.st_uid, geteuid()) << "made by the box, owned by who owns the project";
  EXPECT_EQ(ask("[os.unlink(n) for n in ('f', 'h', 'z/b/c')], os.removedirs('z/b')"),
            "([None, None, None], None)");
  EXPECT_TRUE(fs::is_empty(project_));
  end();
}

// Saving by rename takes the read-only mount off the name: Linux detaches what is mounted in other
// mount namespaces. It cannot be held, so it is said.
TEST_P(LiveProjectTest, AProtectedFileThatTheHostReplacesIsReported) {
  box_.reset();
  make(".envrc", "host\n");
  make(".envrc.new", "host again\n");
  make(".autoenv.zsh", "host\n");
  host_.dir("project/.vscode");
  SetUp();
  EXPECT_EQ(ask("open('.envrc', 'a')"), "OSError");
  EXPECT_EQ(ask("open('.autoenv.zsh', 'a')"), "OSError");
  fs::rename(at(".envrc.new"), at(".envrc"));
  append(".autoenv.zsh", "in place\n");
  EXPECT_EQ(ask("open('.envrc').read().strip()"), "host again");
  EXPECT_EQ(ask("open('.autoenv.zsh', 'a')"), "OSError") << "written in place it stays protected";
  box_->close_in();
  const auto result = box_->finish();
  EXPECT_EQ(result.status, 0);
  EXPECT_THAT(result.err, ::testing::HasSubstr(at(".envrc") + " was replaced by a program on the "
                                                              "host while the box ran"));
  EXPECT_THAT(result.err, ::testing::Not(::testing::HasSubstr("autoenv")));
  EXPECT_THAT(result.err, ::testing::Not(::testing::HasSubstr("vscode")));
}

// Locks are the sentry's own: between processes of a box they work, the host does not see them.
// inotify likewise tells a box of its own changes alone. docs/in-a-box.md says so.
TEST_P(LiveProjectTest, LocksDoNotReachAcross) {
  make("f", "");
  const UniqueFd host(open(at("f").c_str(), O_RDWR | O_CLOEXEC));
  struct flock lock{};
  lock.l_type = F_WRLCK;
  ASSERT_EQ(fcntl(host.get(), F_SETLK, &lock), 0);
  EXPECT_EQ(ask("import fcntl"), "None");
  EXPECT_EQ(ask("fcntl.lockf(open('f', 'r+'), fcntl.LOCK_EX | fcntl.LOCK_NB)"), "None");
  end();
}

}  // namespace
}  // namespace temenos::testing
