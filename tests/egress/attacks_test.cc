// What code in a box tries to reach in spite of its allowlist: nothing comes of it, as it says
// itself and as the internet has recorded. guests/attack_net.py makes the attempts, as the box's
// root, as uid 1000, and as root of a user namespace in the box, with and without a network
// namespace of its own.
#include <sstream>

#include "tests/egress/egress_test.h"

namespace temenos::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

struct Attempt {
  std::string attacker, expected, what, outcome;
};

class AttacksTest : public EgressTest {
 protected:
  // All lines of the guest that were printed.
  static std::vector<Attempt> attempts(const std::string& out) {
    std::vector<Attempt> all;
    std::istringstream in(out);
    std::string attacker = "root";
    for (std::string line; std::getline(in, line);) {
      Attempt one;
      std::istringstream fields(line);
      std::getline(fields, one.expected, '\t');
      std::getline(fields, one.what, '\t');
      std::getline(fields, one.outcome);
      if (one.expected == "attacker") {
        attacker = one.outcome;
        continue;
      }
      if (one.expected != "no" && one.expected != "yes" && one.expected != "any") {
        ADD_FAILURE() << "no attempt: " << line;
      }
      one.attacker = attacker;
      all.push_back(one);
    }
    return all;
  }
  // What was to be reached was, and nothing else.
  static void expect_as_expected(const std::vector<Attempt>& all) {
    for (const auto& one : all) {
      const bool reached = one.outcome.starts_with("reached");
      // A network namespace of its own has no way out at all.
      const bool wanted = one.expected == "yes" && one.attacker != "userns";
      if (one.expected == "any" || reached == wanted) continue;
      ADD_FAILURE() << one.attacker << ": " << one.what << ": " << one.outcome;
    }
  }
  std::string guest_script(const std::string& words) const {
    return "/usr/bin/python3 /egress/attack_net.py " + words;
  }
  Words with_guest() const {
    return {"--volume", readable_guest("attack_net.py") + ":/egress/attack_net.py:ro"};
  }
  // The guest's VERB ARG… as each attacker, at least `least` attempts of each; all went as
  // expected.
  std::vector<Attempt> attack(const Words& allowed, const std::string& words, std::size_t least) {
    const auto result = run(allowed, guest_script("three " + words), with_guest());
    EXPECT_EQ(result.status, 0) << result.err;
    auto all = attempts(result.out);
    expect_as_expected(all);
    std::map<std::string, std::size_t> count;
    for (const auto& one : all) ++count[one.attacker];
    for (const char* name : {"root", "user", "userns", "userns_here"}) {
      EXPECT_GE(count[name], least) << name;
    }
    return all;
  }
  static std::set<std::string> web_of_allowed() {
    return {"dns allowed.site", "tcp 45.46.0.10:443", "tcp [2606:4546::10]:443",
            "tcp 45.46.0.10:80", "tcp [2606:4546::10]:80"};
  }
};
INSTANTIATE_TEST_SUITE_P(Each, AttacksTest, everybody(), name_of);

TEST_P(AttacksTest, QuestionsToAnyResolver) {
  const auto all = attack({"allowed.site"}, "dns allowed.site", 300);
  auto seen = internet().record();
  for (const auto& entry : seen) {
    EXPECT_EQ(entry.find("exfil"), std::string::npos) << "looked up on the host: " << entry;
  }
  // Whoever asks is answered at once, whatever it is: clients must not wait for what never comes.
  for (const auto& one : all) {
    const bool question = !one.what.ends_with("an update") && !one.what.ends_with("no question") &&
                          !one.what.ends_with("not DNS");
    if (question) EXPECT_NE(one.outcome, "silence") << one.attacker << ": " << one.what;
  }
  expect_only(web_of_allowed());
}

TEST_P(AttacksTest, AddressesOfAllKindsInAllSpellings) {
  attack({"allowed.site"}, "addresses 80 443 8080 22 2525", 200);
  expect_only({});
}

// Blocks that hold all of these open none of them.
TEST_P(AttacksTest, ALargeBlockOpensNoSpecialAddress) {
  attack({"0.0.0.0/0:8080", "[::/0]:8080"},
         "names 10.0.0.1:8080 169.254.169.254:8080 100.100.100.200:8080 168.63.129.16:8080 "
         "45.45.45.2:8080 192.168.7.2:8080 192.168.7.1:8080 127.0.0.1:8080 198.18.0.1:8080 "
         "2606:4545::2:8080 fd00:ec2::254:8080 fd00:7::1:8080 64:ff9b::a00:1:8080 "
         "2002:a00:1:::8080 ::ffff:10.0.0.1:8080 +45.46.2.2:8080 +2606:4546::22:8080",
         10);
  expect_only({"tcp 45.46.2.2:8080", "tcp [2606:4546::22]:8080"});
}

TEST_P(AttacksTest, HellosOfTls) {
  attack({"allowed.site", "45.46.7.7"}, "tls allowed.site refused.site", 30);
  auto seen = web_of_allowed();
  seen.insert("tcp 45.46.7.7:443");
  expect_only(seen);
}

TEST_P(AttacksTest, HeadsOfHttp) {
  attack({"allowed.site", "45.46.7.7"}, "http allowed.site refused.site", 45);
  auto seen = web_of_allowed();
  seen.insert("tcp 45.46.7.7:80");
  expect_only(seen);
}

TEST_P(AttacksTest, TheProxy) {
  attack({"allowed.site", "45.46.7.7"}, "proxy allowed.site refused.site", 100);
  auto seen = web_of_allowed();
  seen.insert("tcp 45.46.7.7:443");
  expect_only(seen);
}

TEST_P(AttacksTest, PacketsOfAllKinds) {
  const int step = part_of(100) >= 100 ? 1 : 29;
  const auto all = attack({"allowed.site"}, "raw " + std::to_string(step), 3);
  // The attack was one: its own namespaces let it send such packets.
  bool raw = false;
  for (const auto& one : all) {
    raw |= one.what.starts_with("a raw IPv4 packet") && one.outcome.starts_with("sent");
  }
  EXPECT_TRUE(raw) << "no raw packet was sent in any namespace";
  expect_only({});
}

TEST_P(AttacksTest, AnotherNetworkOfTheBoxsOwnMaking) {
  attack({"allowed.site"}, "routes", 30);
  expect_only({});
}

// Answers of the host's resolver that lead where no name may lead.
TEST_P(AttacksTest, NamesOfForbiddenAddresses) {
  internet().zone(R"(
private.world.site 10.0.0.5
meta.world.site 169.254.169.254
loop.world.site 127.0.0.1 ::1
own.world.site 45.45.45.2 2606:4545::2
ownlan.world.site 192.168.7.2
lan.world.site 192.168.7.1
otherlan.world.site 192.168.7.1
local.world.site fd00:7::1
ec2.world.site fd00:ec2::254
mixed.world.site 10.0.0.6 45.46.2.1
changing.world.site ttl=0 45.46.2.2 | ttl=0 10.0.0.7
long.world.site ttl=2147483647 45.46.2.3 | 10.0.0.8
nat64.world.site 64:ff9b::a00:9
nat64public.world.site 64:ff9b::2d2e:204
ipv4only.arpa 192.0.0.170 192.0.0.171 2606:4546:64::c000:aa 2606:4546:64::c000:ab
ownnat64.world.site 2606:4546:64::a00:9
ownnat64public.world.site 2606:4546:64::2d2e:205
sixtofour.world.site 2002:a00:1::
mapped.world.site ::ffff:10.0.0.10
alias.world.site cname=private.world.site
circle.world.site cname=circle.world.site
group.world.site 224.0.0.1
zero.world.site 0.0.0.0
synthetic.world.site 198.18.1.0 fd74:656d:656e:6f73::2
dead.world.site dead
)");
  std::string names;
  for (const char* name :
       {"private", "meta", "loop", "own", "ownlan", "otherlan", "local", "ec2", "nat64", "ownnat64",
        "sixtofour", "mapped", "alias", "circle", "group", "zero", "synthetic"}) {
    names += std::string(" ") + name + ".world.site:8080";
  }
  names += " ?dead.world.site:8080 ?mixed.world.site:8080 +changing.world.site:8080";
  names += " +long.world.site:8080 +lan.world.site:8080 +nat64public.world.site:8080";
  names += " +ownnat64public.world.site:8080";
  const std::string again = "names ?changing.world.site:8080 ?long.world.site:8080";
  const auto result =
      run({"*.world.site:8080", "private:lan.world.site:8080"},
          guest_script("names" + names) + "; " + guest_script(again) + "; " + guest_script(again),
          with_guest());
  const auto all = attempts(result.out);
  expect_as_expected(all);
  EXPECT_EQ(all.size(), 28u) << result.err;
  std::set<std::string> seen{"tcp 45.46.2.1:8080",
                             "tcp 45.46.2.2:8080",
                             "tcp 45.46.2.3:8080",
                             "tcp 192.168.7.1:8080",
                             "tcp [64:ff9b::2d2e:204]:8080",
                             "tcp 45.46.2.4:8080",
                             "tcp 45.45.45.1:53",
                             "tcp [2606:4546:64::2d2e:205]:8080"};
  for (const auto& entry : internet().record()) {
    if (entry.starts_with("dns ") && entry.ends_with(".world.site")) seen.insert(entry);
  }
  expect_only(seen);
}

TEST_P(AttacksTest, AnAddressThatTheHostGetsLater) {
  internet().zone("later.world.site 45.46.2.9\n");
  const std::string name = guest_script("names later.world.site:8080");
  const std::string address = guest_script("names 45.46.2.10:8080");
  auto words = run_words({"later.world.site:8080", "45.46.2.10:8080"},
                         guest_script("names +later.world.site:8080 +45.46.2.10:8080") +
                             "; echo; echo before; read line; " +
                             guest_script("names later.world.site:8080 45.46.2.10:8080"),
                         with_guest());
  words.insert(words.begin() + 1, "-i");
  auto program = start(words);
  ASSERT_TRUE(program.wait_for("\nbefore\n")) << program.output();
  internet().ip("addr add 45.46.2.9/32 dev up0");
  internet().ip("addr add 45.46.2.10/32 dev lo");
  ASSERT_EQ(write(program.in(), "\n", 1), 1);
  const auto result = program.finish(patience(60));
  std::string out = result.out;
  const auto at = out.find("\nbefore\n");
  ASSERT_NE(at, std::string::npos);
  out.replace(at, 8, "");
  const auto all = attempts(out);
  EXPECT_EQ(all.size(), 4u) << result.err;
  expect_as_expected(all);
  expect_only({"dns later.world.site", "tcp 45.46.2.9:8080", "tcp 45.46.2.10:8080"});
}

TEST_P(AttacksTest, SilenceAndThenAForeignName) {
  internet().zone("any.world.site 45.46.2.5\n");
  const int seconds = part_of(100) >= 100 ? 30 : 12;  // longer than a head may take
  const auto result =
      run({"any.world.site:*", "allowed.site"},
          guest_script("silent " + std::to_string(seconds) + " any.world.site allowed.site"),
          with_guest());
  const auto all = attempts(result.out);
  EXPECT_EQ(all.size(), 6u) << result.err;
  expect_as_expected(all);
  for (const auto& one : all) {
    if (one.what.starts_with("silence")) {
      int seconds_of_silence = 0;
      const auto at = one.outcome.find(" after ");
      ASSERT_NE(at, std::string::npos) << one.outcome;
      ASSERT_EQ(sscanf(one.outcome.c_str() + at, " after %d s", &seconds_of_silence), 1);
      EXPECT_GE(seconds_of_silence, 9);
      EXPECT_LE(seconds_of_silence, 12 + patience(1));
    }
  }
  auto seen = web_of_allowed();
  seen.insert({"dns any.world.site", "tcp 45.46.2.5:*"});
  expect_only(seen);
}

}  // namespace
}  // namespace temenos::testing
