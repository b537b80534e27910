// EgressWatch with a dialer and a front that do what the test wants: this program itself, started
// under their names.
#include "keeper/egress_watch.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "egress/dial_protocol.h"
#include "egress/resolver.h"
#include "sys/file_sys.h"
#include "sys/mount_sys.h"

namespace temenos::keeper {
namespace {

using egress::Control;
using egress::ControlType;
using namespace std::chrono_literals;

void say(ControlType type, std::uint32_t value = 0) {
  const Control control{type, value};
  if (send(egress::kControlFd, &control, sizeof control, MSG_NOSIGNAL) < 0) _exit(1);
}

// It writes down which rules it was given, and does what they say.
[[noreturn]] void be_dialer() {
  say(ControlType::kSelfTested);
  for (;;) {
    auto received = sys::receive_with_fds(egress::kControlFd, sizeof(Control), 2);
    if (!received || received->bytes.size() != sizeof(Control)) _exit(0);
    Control control;
    memcpy(&control, received->bytes.data(), sizeof control);
    if (control.type == ControlType::kFlushLog) say(ControlType::kLogFlushed, 5);
    if (control.type == ControlType::kResolver && received->fds.size() == 2) {
      std::string both;
      for (const auto& fd : received->fds) {
        both += std::to_string(lseek(fd.get(), 0, SEEK_END)) + "\n";
      }
      if (!sys::write_all(egress::kSecondLogFd, both)) _exit(1);
    }
    if (control.type == ControlType::kFront && received->fds.size() == 1) {
      const std::string answer(sizeof(egress::Reply), 'x');
      const int passed = egress::kNamesFd;
      int count = 0;
      while (count < 1'000 &&
             sys::send_with_fds(received->fds[0].get(), answer, {&passed, 1}, MSG_DONTWAIT)) {
        ++count;
      }
      if (!sys::write_all(egress::kSecondLogFd, "sent " + std::to_string(count) + "\n")) _exit(1);
    }
    if (control.type != ControlType::kRules || received->fds.size() != 1) continue;
    char text[64];  // from the beginning: an earlier dialer may have read it
    const ssize_t size = pread(received->fds[0].get(), text, sizeof text, 0);
    const std::string rules(text, static_cast<std::size_t>(std::max<ssize_t>(size, 0)));
    if (!sys::write_all(egress::kFirstLogFd, rules)) _exit(1);
    if (rules == "take\n") say(ControlType::kRulesTaken, 1);
    if (rules == "refuse\n") say(ControlType::kRulesRefused);
    if (rules == "die\n") _exit(1);
    if (rules == "take and hang\n") {
      say(ControlType::kRulesTaken, 1);
      pause();
    }
  }
}

[[noreturn]] void be_front(const std::string& how) {
  do {
    say(ControlType::kJailed);
  } while (how == "front-repeats");
  if (how == "front-hangs") pause();
  std::vector<UniqueFd> never_read;
  while (auto received = sys::receive_with_fds(egress::kControlFd, sizeof(Control), 1)) {
    Control control;
    if (received->bytes.size() != sizeof control) break;
    memcpy(&control, received->bytes.data(), sizeof control);
    if (control.type == ControlType::kPing) say(ControlType::kPong);
    for (auto& fd : received->fds) never_read.push_back(std::move(fd));
  }
  _exit(0);
}

__attribute__((constructor)) void be_somebody_else(int, char** argv) {
  const std::string name = argv[0];
  if (name == "dialer") be_dialer();
  if (name.starts_with("front")) be_front(name);
}

class EgressWatchTest : public ::testing::Test {
 protected:
  void SetUp() override {
    path_ = ::testing::TempDir() + "temenos-egress-XXXXXX";
    ASSERT_NE(mkdtemp(path_.data()), nullptr);
    dir_ = UniqueFd(open(path_.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    for (const char* name : {"dialer", "front", "front-repeats", "front-hangs"}) {
      std::filesystem::create_symlink(std::filesystem::read_symlink("/proc/self/exe"),
                                      path_ + "/" + name);
    }
  }
  void TearDown() override {
    watch_.end();
    std::filesystem::remove_all(path_);
  }
  void listen() {
    netns::Listeners listeners;
    for (auto& listener : listeners) listener.reset(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ASSERT_TRUE(watch_.take_listeners(std::move(listeners)));
  }
  // The first that is told.
  std::string wait_for_news() {
    std::vector<std::string> news;
    turn_until([&] {
      for (auto& one : watch_.take_news()) news.push_back(std::move(one));
      return !news.empty();
    });
    return news.empty() ? "" : news[0];
  }
  void begin(const std::string& rule, const std::string& front = "front") {
    LaunchSpec spec;
    spec.network = NetworkMode::kFiltered;
    spec.dialer = path_ + "/dialer";
    spec.front = path_ + "/" + front;
    spec.allow_hosts = {rule};
    const auto begun = watch_.begin(spec, dir_.get());
    ASSERT_TRUE(begun) << begun.error().to_string();
  }
  Result<void> replace(const std::string& rules) {
    return watch_.replace_rules(*sys::sealed_memory("rules", rules), false);
  }
  // What keeper does all the time, until `done`.
  template <typename Done>
  void turn_until(Done done) {
    const auto end = std::chrono::steady_clock::now() + 20s;
    while (!done()) {
      ASSERT_LT(std::chrono::steady_clock::now(), end);
      auto polls = watch_.polls();
      const int wait = watch_.timeout_ms();
      ASSERT_GE(poll(polls.data(), polls.size(), wait < 0 ? 1000 : wait), 0);
      watch_.check(polls);
    }
  }
  std::string rules_given() const {
    return sys::read_path(path_ + "/egress.0.log", 4096).value_or("");
  }

  std::string path_;
  UniqueFd dir_;
  EgressWatch watch_{0ms};
};

// What a dialer has said to the rules that it began with says nothing of these.
TEST_F(EgressWatchTest, AnAnswerToOtherRulesIsNotTakenForTheAnswerToThese) {
  begin("take");
  EXPECT_FALSE(replace("refuse\n"));
  EXPECT_TRUE(replace("take\n"));
  EXPECT_FALSE(replace("refuse\n"));
  EXPECT_EQ(*watch_.flush_log(), 5u);
}

// Who was told that the old rules hold must not have the new ones a moment later.
TEST_F(EgressWatchTest, ADialerThatDoesNotSayWhetherItTookTheRulesIsReplaced) {
  begin("take");
  EXPECT_FALSE(replace("silent\n"));
  turn_until([&] { return rules_given() == "take\nsilent\ntake\n"; });
  EXPECT_TRUE(replace("take\n"));
}

TEST_F(EgressWatchTest, RulesThatCanStillBeChangedAreNotTaken) {
  begin("take");
  UniqueFd open_to_all(memfd_create("rules", MFD_CLOEXEC));
  ASSERT_TRUE(sys::write_all(open_to_all.get(), "take\n"));
  ASSERT_EQ(lseek(open_to_all.get(), 0, SEEK_SET), 0);
  EXPECT_FALSE(watch_.replace_rules(std::move(open_to_all), false));
  EXPECT_TRUE(watch_.flush_log());
  EXPECT_EQ(rules_given(), "take\n");
}

TEST_F(EgressWatchTest, NothingIsProvenByADialerWithoutTheRules) {
  begin("refuse");
  ASSERT_TRUE(watch_.flush_log());  // all of its words are heard
  EXPECT_FALSE(watch_.is_proven());
  EXPECT_TRUE(replace("take\n"));
  EXPECT_TRUE(watch_.is_proven());
}

// Refusals of the next life are not taken for none.
TEST_F(EgressWatchTest, TheCountOfRefusalsNeverRepeats) {
  begin("take");
  EXPECT_EQ(*watch_.flush_log(), 5u);
  EXPECT_FALSE(replace("die\n"));
  turn_until([&] { return rules_given() == "take\ndie\ntake\n"; });
  EXPECT_GT(*watch_.flush_log(), 5u);
}

// A host that has no more processes or descriptors has no CPU for us either.
TEST_F(EgressWatchTest, WhatCannotBeStartedIsTriedWithPauses) {
  begin("take");
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_FALSE(replace("die\n"));
  const UniqueFd next(dup(0));
  const rlimit none{static_cast<rlim_t>(next.get()), before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  for (int i = 0; i < 3; ++i) {
    auto polls = watch_.polls();
    (void)poll(polls.data(), polls.size(), watch_.timeout_ms());
    watch_.check(polls);
  }
  EXPECT_GT(watch_.timeout_ms(), 0);
  EXPECT_EQ(watch_.take_news().size(), 1u);  // that it has died; all else is no news
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  turn_until([&] { return rules_given() == "take\ndie\ntake\n"; });
}

// A dialer takes no longer ones, and one after the other would die of them.
TEST_F(EgressWatchTest, LongFilesOfTheHostsAreCutAtALine) {
  const std::string file = path_ + "/long";
  const std::string line = "# 0123456789abcdef\n";
  {
    std::ofstream out(file);
    for (std::size_t i = 0; i < (3u << 20) / line.size(); ++i) out << line;
  }
  auto child = sys::start_in_namespaces(CLONE_NEWUSER | CLONE_NEWNS, [&] {
    for (const char* target : {"/etc/resolv.conf", "/etc/hosts"}) {
      const UniqueFd from(open(file.c_str(), O_PATH | O_CLOEXEC));
      const UniqueFd to(open(target, O_PATH | O_CLOEXEC));
      const auto mount = sys::clone_mount(from.get(), {});
      if (!mount || !sys::attach_mount(mount->get(), to.get())) return 1;
    }
    begin("take");
    const bool heard = watch_.flush_log().has_value();
    watch_.end();
    return heard ? 0 : 2;
  });
  ASSERT_TRUE(child);
  EXPECT_EQ(child->wait()->code, 0);
  const auto cut = [&](std::size_t most) {
    return std::to_string(most / line.size() * line.size()) + "\n";
  };
  EXPECT_EQ(sys::read_path(path_ + "/egress.1.log", 4096).value_or("?"),
            cut(egress::kMaxResolvConf) + cut(egress::kMaxHosts));
}

// It may be the box's by now, and keeper has other things to do than to listen to it.
TEST_F(EgressWatchTest, AFrontThatHasMoreToSayThanItsOneWordIsReplaced) {
  begin("take", "front-repeats");
  listen();
  EXPECT_EQ(wait_for_news(), "the front of the box's network has died; it is started again");
}

// They are counted for all of a user's boxes, whose own would be refused in the end.
TEST_F(EgressWatchTest, AFrontThatReadsNoAnswersKeepsFewDescriptorsUnderWay) {
  begin("take");
  listen();
  EXPECT_TRUE(watch_.flush_log());
  const std::string text = sys::read_path(path_ + "/egress.1.log", 4096).value_or("");
  const auto at = text.find("sent ");
  ASSERT_NE(at, text.npos) << text;
  const int sent = std::stoi(text.substr(at + 5));
  EXPECT_GE(sent, 2);
  EXPECT_LE(sent, 32);
}

TEST_F(EgressWatchTest, AFrontThatHangsIsReplaced) {
  watch_ = EgressWatch{0ms, 300ms};
  begin("take", "front-hangs");
  listen();
  EXPECT_TRUE(watch_.flush_log());
  EXPECT_EQ(wait_for_news(), "the front of the box's network does not answer; it is started again");
}

TEST_F(EgressWatchTest, ADialerThatHangsIsReplaced) {
  watch_ = EgressWatch{0ms, 300ms};
  begin("take and hang");
  EXPECT_FALSE(watch_.flush_log());
  EXPECT_EQ(wait_for_news(),
            "the dialer of the box's network does not answer; it is started again");
}

// And one that answers stays: nothing is owed any more.
TEST_F(EgressWatchTest, AnAnswerIsASignOfLife) {
  watch_ = EgressWatch{0ms, 10s};
  begin("take");
  listen();
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(watch_.flush_log());
    turn_until([&] { return watch_.timeout_ms() < 0; });
  }
  EXPECT_TRUE(watch_.take_news().empty());
}

}  // namespace
}  // namespace temenos::keeper
