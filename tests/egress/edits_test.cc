// Edits of the allowlist of boxes with names, by programs of their own that use the library: they
// hold at once, in every later life, and whatever dies; what is denied is closed, open connections
// too.
#include <signal.h>

#include <chrono>
#include <fstream>
#include <random>
#include <sstream>

#include "tests/egress/egress_test.h"
#include "tests/egress/told.h"
#include "tests/integration/durable_box.h"

namespace temenos::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using Clock = std::chrono::steady_clock;

constexpr char kBox[] = "edited";

class EditsTest : public EgressTest {
 protected:
  void SetUp() override {
    EgressTest::SetUp();
    if (IsSkipped()) return;
    internet().zone("one.world.site 45.46.2.1\ntwo.world.site 45.46.2.2\n");
  }
  void TearDown() override {
    if (!IsSkipped()) tool({"remove", kBox});
    EgressTest::TearDown();
  }
  std::unique_ptr<Program> start_tool(const Words& words, const Variables& env = {}) const {
    return std::make_unique<Program>(host(), argv_of(readable_guest("box_tool"), words), env);
  }
  CliResult tool(const Words& words, const Variables& env = {}) const {
    const auto program = start_tool(words, env);
    program->close_in();
    return program->finish(patience(120));
  }
  // One that must succeed: the lines that it prints.
  Words lines(const Words& words, const Variables& env = {}) const {
    const auto result = tool(words, env);
    EXPECT_EQ(result.status, 0) << words[0] << ": " << result.err;
    Words out;
    std::istringstream in(result.out);
    for (std::string line; std::getline(in, line);) out.push_back(line);
    return out;
  }
  void create(const std::string& allow, const std::string& verb = "new") const {
    lines({verb, kBox}, {{"ALLOW", allow}});
  }
  // A server that speaks first, as its box reaches it: starts the box.
  std::string reach(const std::string& name) const {
    return tool({"exec", kBox, "bash", "-c",
                 "timeout 20 bash -c 'exec 3<>/dev/tcp/" + name + "/2525 && head -1 <&3' 2>&1"})
        .out;
  }
  // Front forgets that a name was refused within a second.
  ::testing::AssertionResult reached_soon(const std::string& name) const {
    std::string said;
    const auto end = Clock::now() + std::chrono::seconds(patience(30));
    while (Clock::now() < end) {
      said = reach(name);
      if (said.find("reached") != said.npos) return ::testing::AssertionSuccess();
    }
    return ::testing::AssertionFailure() << said;
  }
  // A command with a connection to each host, which says "open", then what becomes of the first
  // one, and whether the second one still carries something.
  std::unique_ptr<Program> open_both(const std::string& first, const std::string& second) const {
    const std::string script = "trap '' PIPE; exec 3<>/dev/tcp/" + first +
                               "/2525 && head -1 <&3 && exec 4<>/dev/tcp/" + second +
                               "/2525 && head -1 <&4 && echo open; cat <&3; echo first: closed; "
                               "echo still there >&4; read -r line <&4; echo second: $line";
    auto program = start_tool({"exec", kBox, "bash", "-c", script});
    EXPECT_TRUE(program->wait_for("open\n")) << program->output();
    return program;
  }
  std::string data_dir() const {
    std::string path = host_shell("find " + host().path() + "/home/data -name temenos-box.json");
    return path.substr(0, path.rfind('/'));
  }
  pid_t part(const std::string& name) const {
    return child_of(durable_box_processes(data_dir()).keeper, name);
  }
  void kill_part(const std::string& name, int signal = SIGKILL) const {
    const pid_t pid = part(name);
    ASSERT_GT(pid, 0) << name;
    ASSERT_EQ(kill(pid, signal), 0);
  }
  std::string audit() const {
    std::ifstream in(data_dir() + "/audit.jsonl");
    std::stringstream out;
    out << in.rdbuf();
    return out.str();
  }
};
INSTANTIATE_TEST_SUITE_P(Each, EditsTest, everybody(), name_of);

TEST_P(EditsTest, AnEditHoldsAtOnceAndInEveryLaterLife) {
  create("one.world.site:2525");
  EXPECT_THAT(reach("one.world.site"), HasSubstr("reached 45.46.2.1:2525"));
  EXPECT_THAT(reach("two.world.site"), Not(HasSubstr("reached")));
  EXPECT_THAT(lines({"allow", kBox, "TWO.world.site:2525", "one.world.site:2525"}),
              ElementsAre("one.world.site:2525", "two.world.site:2525"));
  EXPECT_TRUE(reached_soon("two.world.site"));
  kill_part("temenos-dialer");
  EXPECT_TRUE(reached_soon("two.world.site"));
  lines({"stop", kBox});
  EXPECT_TRUE(reached_soon("two.world.site"));

  EXPECT_THAT(lines({"deny", kBox, "two.world.site.:2525"}), ElementsAre("one.world.site:2525"));
  internet().forget();
  EXPECT_THAT(reach("two.world.site"), Not(HasSubstr("reached")));
  kill_part("temenos-dialer");
  EXPECT_TRUE(reached_soon("one.world.site"));
  EXPECT_THAT(reach("two.world.site"), Not(HasSubstr("reached")));
  lines({"stop", kBox});
  EXPECT_TRUE(reached_soon("one.world.site"));
  EXPECT_THAT(reach("two.world.site"), Not(HasSubstr("reached")));
  EXPECT_THAT(audit(),
              AllOf(HasSubstr(R"("event":"net_allow","entries":["TWO.world.site:2525")"),
                    HasSubstr(R"("event":"net_deny","entries":["two.world.site.:2525"])")));
  expect_only({"dns one.world.site", "tcp 45.46.2.1:2525"});
}

TEST_P(EditsTest, AStoppedBoxIsEditedAndNotStarted) {
  create("one.world.site:2525", "create");
  EXPECT_THAT(lines({"allow", kBox, "two.world.site:2525"}),
              ElementsAre("one.world.site:2525", "two.world.site:2525"));
  EXPECT_THAT(lines({"deny", kBox, "one.world.site:2525"}), ElementsAre("two.world.site:2525"));
  EXPECT_THAT(lines({"list"}), ElementsAre(::testing::EndsWith(" -")));
  EXPECT_TRUE(reached_soon("two.world.site"));
  EXPECT_THAT(reach("one.world.site"), Not(HasSubstr("reached")));
  expect_only({"dns two.world.site", "tcp 45.46.2.2:2525"});
}

// A handle that was made before the edit starts the box after it.
TEST_P(EditsTest, AnOlderHandleBringsNothingBack) {
  create("one.world.site:2525 two.world.site:2525", "create");
  const std::string both =
      "for name in one two; do timeout 20 bash -c \"exec 3<>/dev/tcp/$name.world.site/2525 && "
      "head -1 <&3\" 2>&1; done";
  const auto older = start_tool({"later", kBox, "bash", "-c", both});
  ASSERT_TRUE(older->wait_for("found\n"));
  EXPECT_THAT(lines({"deny", kBox, "one.world.site:2525"}), ElementsAre("two.world.site:2525"));
  older->close_in();
  const auto said = older->finish(patience(120)).out;
  EXPECT_THAT(said, HasSubstr("reached 45.46.2.2:2525"));
  EXPECT_THAT(said, Not(HasSubstr("reached 45.46.2.1")));
  // And its start has not written the older list.
  EXPECT_THAT(lines({"allowed", kBox}), ElementsAre("two.world.site:2525"));
  expect_only({"dns two.world.site", "tcp 45.46.2.2:2525"});
}

TEST_P(EditsTest, OfManyWhoEditAtOnceNobodyIsLost) {
  create("one.world.site:2525");
  std::vector<std::unique_ptr<Program>> all;
  std::vector<std::string> expected{"one.world.site:2525"};
  for (int i = 10; i < 20; ++i) {
    const std::string entry = "h" + std::to_string(i) + ".world.site";
    expected.insert(expected.end() - 1, entry);
    all.push_back(start_tool({"allow", kBox, entry}));
  }
  // The box is stopped, and started by a command, meanwhile.
  all.push_back(start_tool({"stop", kBox}));
  all.push_back(start_tool({"exec", kBox, "true"}));
  for (const auto& program : all) {
    program->close_in();
    const auto result = program->finish(patience(120));
    // The command's box may be stopped under it.
    if (program != all.back()) EXPECT_EQ(result.status, 0) << result.err;
  }
  EXPECT_EQ(lines({"allowed", kBox}), expected);
}

TEST_P(EditsTest, WhatIsRefusedChangesNothing) {
  create("one.world.site:2525 @pypi");
  const struct {
    Words words;
    std::string told;
  } rows[] = {
      {{"allow", kBox, "two.world.site:2525", "http://x"}, "http://x"},
      {{"allow", kBox, "two.world.site:2525", "169.254.169.254"}, "169.254.169.254"},
      {{"allow", kBox}, "no entry"},
      {{"deny", kBox, "one.world.site:2525", "two.world.site:2525"},
       "two.world.site:2525 is not in the allowlist, which has @pypi, one.world.site:2525"},
      {{"deny", kBox, "pypi.org"}, "what allows it, or some of it, is @pypi: deny that"},
      {{"deny", kBox, "a b"}, "a b"},
  };
  for (const auto& row : rows) {
    const auto result = tool(row.words);
    EXPECT_EQ(result.status, 125);
    EXPECT_THAT(result.err, AllOf(HasSubstr(row.told), Not(HasSubstr("[no hint]"))));
  }
  EXPECT_THAT(lines({"allowed", kBox}), ElementsAre("@pypi", "one.world.site:2525"));
  EXPECT_THAT(reach("one.world.site"), HasSubstr("reached"));
  EXPECT_THAT(reach("two.world.site"), Not(HasSubstr("reached")));
  EXPECT_THAT(lines({"allow", kBox, "*.world.site:*"}), Not(IsEmpty()));
  EXPECT_THAT(lines({"deny", kBox, "one.world.site:2525"}),
              ElementsAre("*.world.site:*", "@pypi",
                          "note one.world.site:2525 is still allowed, by *.world.site:*"));
  lines({"remove", kBox});
  lines({"create", kBox});
  for (const char* verb : {"allow", "deny", "allowed"}) {
    const auto result = tool({verb, kBox, "one.world.site"});
    EXPECT_EQ(result.status, 125);
    EXPECT_THAT(result.err, HasSubstr("the box has the network 'none', which has no allowlist"));
  }
  expect_only({"dns one.world.site", "tcp 45.46.2.1:2525"});
}

TEST_P(EditsTest, ADenyClosesWhatIsOpenAndNothingElse) {
  create("one.world.site:2525 two.world.site:2525");
  const auto command = open_both("one.world.site", "two.world.site");
  const pid_t front = part("temenos-front");
  EXPECT_THAT(lines({"deny", kBox, "one.world.site:2525"}), ElementsAre("two.world.site:2525"));
  const auto said = command->finish(patience(60));
  EXPECT_THAT(said.out, HasSubstr("first: closed\nsecond: still there"));
  EXPECT_EQ(part("temenos-front"), front);
  // An entry that another one still allows, and the other way round: a TLS-only rule is not enough
  // for what nobody has looked at.
  lines({"allow", kBox, "*.world.site:2525"});
  const auto more = open_both("one.world.site", "two.world.site");
  lines({"deny", kBox, "two.world.site:2525"});
  lines({"allow", kBox, "one.world.site", "two.world.site:2525"});
  lines({"deny", kBox, "*.world.site:2525"});
  EXPECT_THAT(more->finish(patience(60)).out, HasSubstr("first: closed\nsecond: still there"));
  EXPECT_EQ(part("temenos-front"), front);
}

// As one does that the box has taken over.
TEST_P(EditsTest, AFrontThatDoesNotEndThemIsEnded) {
  create("one.world.site:2525 two.world.site:2525");
  const auto command = open_both("one.world.site", "two.world.site");
  const pid_t front = part("temenos-front");
  kill_part("temenos-front", SIGSTOP);
  EXPECT_THAT(lines({"deny", kBox, "one.world.site:2525"}), ElementsAre("two.world.site:2525"));
  EXPECT_EQ(kill(front, 0), -1) << "front is still there when the deny has returned";
  EXPECT_THAT(command->finish(patience(60)).out, HasSubstr("first: closed\nsecond:\n"));
  EXPECT_TRUE(reached_soon("two.world.site"));
  EXPECT_THAT(reach("one.world.site"), Not(HasSubstr("reached")));
  EXPECT_THAT(audit(), HasSubstr("the front of the box's network was ended"));
}

// What a dialer has handed out before it died is known to no other.
TEST_P(EditsTest, ConnectionsOfAnEarlierDialerAreClosedToo) {
  create("one.world.site:2525 two.world.site:2525");
  const auto command = open_both("one.world.site", "two.world.site");
  kill_part("temenos-dialer");
  EXPECT_TRUE(reached_soon("two.world.site"));
  lines({"deny", kBox, "one.world.site:2525"});
  EXPECT_THAT(command->finish(patience(60)).out, HasSubstr("first: closed\nsecond:\n"));
  EXPECT_TRUE(reached_soon("two.world.site"));
  // From here on they are known again.
  const auto more = open_both("two.world.site", "two.world.site");
  lines({"allow", kBox, "one.world.site:2525"});
  lines({"deny", kBox, "one.world.site:2525"});
  lines({"deny", kBox, "two.world.site:2525"});
  EXPECT_THAT(more->finish(patience(60)).out, HasSubstr("first: closed"));
}

// A dialer that hangs cannot keep an entry open.
TEST_P(EditsTest, ADialerThatDoesNotAnswerIsReplaced) {
  create("one.world.site:2525 two.world.site:2525");
  kill_part("temenos-dialer", SIGSTOP);
  EXPECT_THAT(lines({"deny", kBox, "one.world.site:2525"}), ElementsAre("two.world.site:2525"));
  EXPECT_TRUE(reached_soon("two.world.site"));
  EXPECT_THAT(reach("one.world.site"), Not(HasSubstr("reached")));
  // What could not be opened is not in the list either.
  kill_part("temenos-dialer", SIGSTOP);
  EXPECT_THAT(tool({"allow", kBox, "one.world.site:2525"}).err, HasSubstr("does not answer"));
  EXPECT_THAT(lines({"allowed", kBox}), ElementsAre("two.world.site:2525"));
  EXPECT_THAT(reach("one.world.site"), Not(HasSubstr("reached")));
  expect_only({"dns two.world.site", "tcp 45.46.2.2:2525"});
}

// Whenever its program is killed: a live box reaches nothing that the list does not name, and what
// a deny has said to be closed stays so.
TEST_P(EditsTest, AnEditThatIsKilledLeavesNothingOpenThatIsNotInTheList) {
  create("two.world.site:2525");
  const std::string seed = std::getenv("TEMENOS_CRASH_SEED") != nullptr
                               ? std::getenv("TEMENOS_CRASH_SEED")
                               : std::to_string(std::random_device()());
  SCOPED_TRACE("TEMENOS_CRASH_SEED=" + seed);
  std::mt19937_64 random(std::stoull(seed));
  const std::string entry = "one.world.site:2525";
  int killed = 0;
  for (int round = 0; round < part_of(20); ++round) {
    lines({"allow", kBox, entry});
    const bool deny = round % 3 != 0;
    if (!deny) lines({"deny", kBox, entry});
    {
      const auto program = start_tool({deny ? "deny" : "allow", kBox, entry});
      program->close_in();
      program->read_for(std::chrono::microseconds(random() % (15'000 * patience(1))));
      killed += kill(program->pid(), SIGKILL) == 0;
      const bool returned = program->finish().status == 0;
      const auto list = lines({"allowed", kBox});
      const bool listed = std::find(list.begin(), list.end(), entry) != list.end();
      if (returned) EXPECT_EQ(listed, !deny);
      if (!listed) EXPECT_THAT(reach("one.world.site"), Not(HasSubstr("reached"))) << round;
    }
    // The same call again ends what was begun.
    const auto again = tool({deny ? "deny" : "allow", kBox, entry});
    EXPECT_TRUE(again.status == 0 || again.err.find("is not in the allowlist") != again.err.npos)
        << again.err;
    if (deny) {
      EXPECT_THAT(reach("one.world.site"), Not(HasSubstr("reached"))) << round;
    } else {
      EXPECT_TRUE(reached_soon("one.world.site")) << round;
    }
  }
  EXPECT_GT(killed, 0);
  lines({"deny", kBox, "two.world.site:2525"});
  lines({"stop", kBox});
  EXPECT_THAT(reach("two.world.site"), Not(HasSubstr("reached")));
}

}  // namespace
}  // namespace temenos::testing
