// Init as an attacker: each misstep is named, ends the box, and reaches every client as a typed
// error.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "session/engine_script.h"

namespace temenos::session {
namespace {

using namespace box_wire;

struct Scene {
  EngineScript script;
  int slot = 0;
  std::uint32_t exec = 0;     // asked, not started
  std::uint32_t running = 0;  // started, has a stdin
  std::uint32_t exited = 0;
  std::uint32_t read = 0;
  std::uint32_t write = 0;
  std::uint32_t list = 0;
  std::uint32_t stat = 0;
  std::uint32_t ping = 0;
  std::uint32_t change = 0;   // a removal
  std::uint32_t dialing = 0;  // asked, not connected
  std::uint32_t dialed = 0;

  Scene() {
    script.ready();
    slot = script.client();
    exec = script.exec(slot, 1);
    running = script.exec(slot, 2, {.flags = kExecStdin});
    script.init(running, Started{4});
    exited = script.exec(slot, 3);
    script.init(exited, Started{5});
    script.init(exited, Exited{false, 0});
    script.say(slot, 4, Read{0, 10, kWindow, "/a"});
    script.say(slot, 5, Write{Write::How::kReplace, kKeepMode, "/a"});
    script.say(slot, 6, List{kWindow, "/a"});
    script.say(slot, 7, Stat{false, "/a"});
    script.say(slot, 8, Ping{1});
    script.say(slot, 9, Remove{true, "/a"});
    script.say(slot, 10, Dial{Dial::To::kTcp, 80});
    script.say(slot, 11, Dial{Dial::To::kUnix, 0, kWindow, "/s"});
    const auto asked = script.init_heard();
    read = asked.at(0).id;
    write = asked.at(1).id;
    list = asked.at(2).id;
    stat = asked.at(3).id;
    ping = asked.at(4).id;
    change = asked.at(5).id;
    dialing = asked.at(6).id;
    dialed = asked.at(7).id;
    script.init(dialed, Type::kDialed);
    script.client_heard(slot);
  }
};

void expect_violation(const char* what, Violation violation,
                      const std::function<void(Scene&)>& misstep) {
  SCOPED_TRACE(what);
  Scene scene;
  misstep(scene);
  ASSERT_TRUE(scene.script.engine.dead());
  const auto events = scene.script.engine.take_events();
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].type, ControlType::kInitLost);
  EXPECT_EQ(events[0].reason, static_cast<std::uint32_t>(LostReason::kViolation));
  EXPECT_EQ(events[0].detail, static_cast<std::uint32_t>(violation))
      << violation_name(static_cast<Violation>(events[0].detail));
  EXPECT_EQ(events[1].type, ControlType::kKillBox);
  EXPECT_EQ(events[1].reason, static_cast<std::uint32_t>(KillReason::kViolation));
  const auto heard = scene.script.client_heard(scene.slot);
  ASSERT_FALSE(heard.empty());
  EXPECT_EQ(heard.back().id, 0u);
  EXPECT_EQ(heard.back().as<ErrorReply>().stage, Stage::kBoxLost);
  EXPECT_EQ(scene.script.engine.live_operations(), 0);
  EXPECT_TRUE(scene.script.engine.closing(scene.slot));
}

std::vector<std::uint8_t> raw(std::uint32_t length, std::uint16_t type, std::uint16_t flags,
                              std::uint32_t id) {
  std::vector<std::uint8_t> header(kHeaderSize);
  put_header({length, type, flags, id}, header.data());
  return header;
}

TEST(HostileInit, FramesWithoutForm) {
  expect_violation("length", Violation::kBadFrame,
                   [](Scene& s) { s.script.init_bytes(raw(kMaxPayload + 1, 21, 0, s.running)); });
  expect_violation("all ones", Violation::kBadFrame,
                   [](Scene& s) { s.script.init_bytes(std::vector<std::uint8_t>(64, 0xff)); });
  expect_violation("flags", Violation::kBadFrame,
                   [](Scene& s) { s.script.init_bytes(raw(0, 21, 4, s.running)); });
  expect_violation("MORE", Violation::kBadFrame,
                   [](Scene& s) { s.script.init_bytes(raw(0, 17, kFlagMore, s.running)); });
}

TEST(HostileInit, TypesThatInitMayNotSend) {
  for (const int type :
       {0, 2, 4, 15, 16, 18, 19, 25, 26, 30, 32, 33, 34, 35, 38, 39, 48, 56, 58, 79, 65535}) {
    expect_violation(std::to_string(type).c_str(), Violation::kUnknownType, [type](Scene& s) {
      s.script.init_bytes(raw(0, static_cast<std::uint16_t>(type), 0, s.running));
    });
  }
}

TEST(HostileInit, Hellos) {
  expect_violation("twice", Violation::kBadHello, [](Scene& s) { s.script.init(0, Hello{}); });
  for (const Hello hello :
       {Hello{1, kVersion, 0}, Hello{kMagic, kVersion + 1, 0}, Hello{kMagic, kVersion, 2}}) {
    EngineScript script;
    script.init(0, hello);
    EXPECT_TRUE(script.engine.dead());
    EXPECT_EQ(script.engine.take_events().at(0).detail,
              static_cast<std::uint32_t>(Violation::kBadHello));
  }
  EngineScript first;
  first.init(1, Started{1});
  EXPECT_TRUE(first.engine.dead());
}

TEST(HostileInit, NoHelloInTimeCostsTheBox) {
  EngineScript script;
  script.at(script.now + script.config.hello_timeout - 1);
  EXPECT_FALSE(script.engine.dead());
  script.at(script.now + 1);
  EXPECT_TRUE(script.engine.dead());
  const auto events = script.engine.take_events();
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].reason, static_cast<std::uint32_t>(LostReason::kTimeout));
  EXPECT_EQ(events[1].reason, static_cast<std::uint32_t>(KillReason::kNoHello));
}

TEST(HostileInit, AnExecThatIsNeverStartedCostsTheBox) {
  EngineScript script;
  script.init(0, Hello{});
  const int slot = script.client();
  script.exec(slot, 1);
  script.at(script.now + script.config.start_timeout - 1);
  EXPECT_FALSE(script.engine.dead());
  script.at(script.now + 1);
  EXPECT_TRUE(script.engine.dead());
  const auto events = script.engine.take_events();
  ASSERT_FALSE(events.empty());
  EXPECT_EQ(events.back().reason, static_cast<std::uint32_t>(KillReason::kSilent));
}

TEST(HostileInit, ADialThatIsNeverAnsweredCostsTheBox) {
  EngineScript script;
  script.ready();
  const int slot = script.client();
  script.say(slot, 1, Dial{Dial::To::kTcp, 80});
  script.at(script.now + script.config.start_timeout - 1);
  EXPECT_FALSE(script.engine.dead());
  script.at(script.now + 1);
  EXPECT_TRUE(script.engine.dead());
  const auto events = script.engine.take_events();
  ASSERT_FALSE(events.empty());
  EXPECT_EQ(events.back().reason, static_cast<std::uint32_t>(KillReason::kSilent));
}

TEST(HostileInit, ForeignIds) {
  expect_violation("never given", Violation::kForeignId,
                   [](Scene& s) { s.script.init(12345, Started{1}); });
  expect_violation("zero", Violation::kForeignId, [](Scene& s) { s.script.init(0, Started{1}); });
  expect_violation("another generation", Violation::kForeignId, [](Scene& s) {
    s.script.init(s.running + (1u << 10), Type::kStdout, s.script.bytes(1));
  });
  expect_violation("after its end", Violation::kForeignId, [](Scene& s) {
    s.script.init(s.exited, Done{});
    s.script.init(s.exited, Done{});
  });
}

TEST(HostileInit, MessagesOutOfTheirState) {
  const auto wrong = [](const char* what, const std::function<void(Scene&)>& misstep) {
    expect_violation(what, Violation::kWrongState, misstep);
  };
  wrong("started twice", [](Scene& s) { s.script.init(s.running, Started{1}); });
  wrong("exited twice", [](Scene& s) { s.script.init(s.exited, Exited{false, 1}); });
  wrong("exited before start", [](Scene& s) { s.script.init(s.exec, Exited{false, 1}); });
  wrong("done before exit", [](Scene& s) { s.script.init(s.running, Done{}); });
  wrong("error after start",
        [](Scene& s) { s.script.init(s.running, ErrorReply{Stage::kNotFound, 2}); });
  wrong("output before start",
        [](Scene& s) { s.script.init(s.exec, Type::kStdout, s.script.bytes(1)); });
  wrong("output after its end", [](Scene& s) {
    s.script.init(s.running, OutputEof{Stream::kStdout});
    s.script.init(s.running, Type::kStdout, s.script.bytes(1));
  });
  wrong("two ends", [](Scene& s) {
    s.script.init(s.running, OutputEof{Stream::kStderr});
    s.script.init(s.running, OutputEof{Stream::kStderr});
  });
  wrong("stdin closed without one", [](Scene& s) { s.script.init(s.exited, Type::kStdinClosed); });
  wrong("stdin closed twice", [](Scene& s) {
    s.script.init(s.running, Type::kStdinClosed);
    s.script.init(s.running, Type::kStdinClosed);
  });
  wrong("stdin credit without one",
        [](Scene& s) { s.script.init(s.exited, Credit{Stream::kStdin, 1}); });
  wrong("output credit from init",
        [](Scene& s) { s.script.init(s.running, Credit{Stream::kStdout, 1}); });
  wrong("stderr of a read",
        [](Scene& s) { s.script.init(s.read, Type::kStderr, s.script.bytes(1)); });
  wrong("output of a write",
        [](Scene& s) { s.script.init(s.write, Type::kStdout, s.script.bytes(1)); });
  wrong("end of output of a read",
        [](Scene& s) { s.script.init(s.read, OutputEof{Stream::kStdout}); });
  wrong("stat for a read", [](Scene& s) { s.script.init(s.read, StatReply{}); });
  wrong("file done for an exec", [](Scene& s) { s.script.init(s.running, FileDone{}); });
  wrong("file done for a stat", [](Scene& s) { s.script.init(s.stat, FileDone{}); });
  wrong("exit of a read", [](Scene& s) { s.script.init(s.read, Exited{false, 0}); });
  wrong("done of a write", [](Scene& s) { s.script.init(s.write, Done{}); });
  wrong("error of a ping", [](Scene& s) { s.script.init(s.ping, ErrorReply{Stage::kFile, 1}); });
  wrong("file done of an exec", [](Scene& s) { s.script.init(s.exited, FileDone{1}); });
  wrong("stat for a change", [](Scene& s) { s.script.init(s.change, StatReply{}); });
  wrong("output of a change",
        [](Scene& s) { s.script.init(s.change, Type::kStdout, s.script.bytes(1)); });
  wrong("dialed for an exec", [](Scene& s) { s.script.init(s.exec, Type::kDialed); });
  wrong("started for a dial", [](Scene& s) { s.script.init(s.dialing, Started{1}); });
  wrong("dialed twice", [](Scene& s) { s.script.init(s.dialed, Type::kDialed); });
  wrong("bytes before dialed",
        [](Scene& s) { s.script.init(s.dialing, Type::kStdout, s.script.bytes(1)); });
  wrong("an end before dialed",
        [](Scene& s) { s.script.init(s.dialing, OutputEof{Stream::kStdout}); });
  wrong("credit before dialed",
        [](Scene& s) { s.script.init(s.dialing, Credit{Stream::kStdin, 1}); });
  wrong("closed before dialed", [](Scene& s) { s.script.init(s.dialing, Type::kStdinClosed); });
  wrong("over before dialed", [](Scene& s) { s.script.init(s.dialing, FileDone{}); });
  wrong("over before the port's end", [](Scene& s) { s.script.init(s.dialed, FileDone{}); });
  wrong("stderr of a dial",
        [](Scene& s) { s.script.init(s.dialed, Type::kStderr, s.script.bytes(1)); });
  wrong("end of stderr of a dial",
        [](Scene& s) { s.script.init(s.dialed, OutputEof{Stream::kStderr}); });
  wrong("bytes after the port's end", [](Scene& s) {
    s.script.init(s.dialed, OutputEof{Stream::kStdout});
    s.script.init(s.dialed, Type::kStdout, s.script.bytes(1));
  });
  wrong("exit of a dial", [](Scene& s) { s.script.init(s.dialed, Exited{false, 0}); });
  wrong("done of a dial", [](Scene& s) { s.script.init(s.dialed, Done{}); });
  wrong("pong for a stat", [](Scene& s) {
    ByteQueue out;
    put_pong(out, s.stat, Ping{1});
    s.script.init_queue(out);
  });
}

TEST(HostileInit, PayloadsWithoutForm) {
  const auto bad = [](const char* what, const std::function<void(Scene&)>& misstep) {
    expect_violation(what, Violation::kBadPayload, misstep);
  };
  bad("short", [](Scene& s) { s.script.init(s.exec, Type::kStarted, s.script.bytes(3)); });
  bad("long", [](Scene& s) { s.script.init(s.exec, Type::kStarted, s.script.bytes(5)); });
  bad("empty output", [](Scene& s) { s.script.init(s.running, Type::kStdout); });
  bad("flags of session", [](Scene& s) { s.script.init(s.exited, Done{kDoneTimedOut, 0, {}}); });
  bad("more pids than told", [](Scene& s) { s.script.init(s.exited, Done{0, 1, {2, 3}}); });
  bad("stage of session", [](Scene& s) { s.script.init(s.exec, ErrorReply{Stage::kBoxLost, 0}); });
  bad("entries that are none",
      [](Scene& s) { s.script.init(s.list, Type::kStdout, s.script.bytes(40)); });
  bad("an entry that climbs", [](Scene& s) {
    std::uint8_t room[kMaxEntry];
    const std::size_t size = put_entry(room, {FileType::kRegular, 0644, 1, 1, ".."});
    s.script.init(s.list, Type::kStdout, Bytes(room, size));
  });
  bad("dialed with a payload",
      [](Scene& s) { s.script.init(s.dialing, Type::kDialed, s.script.bytes(1)); });
  bad("a port that says nothing", [](Scene& s) { s.script.init(s.dialed, Type::kStdout); });
  bad("stage of session for a dial",
      [](Scene& s) { s.script.init(s.dialing, ErrorReply{Stage::kBusy, 0}); });
  bad("stdin closed with a payload",
      [](Scene& s) { s.script.init(s.running, Type::kStdinClosed, s.script.bytes(1)); });
}

TEST(HostileInit, CreditOfBothDirections) {
  expect_violation("output beyond credit", Violation::kBeyondCredit, [](Scene& s) {
    for (int i = 0; i < 8 && !s.script.engine.dead(); ++i) {
      s.script.init(s.running, Type::kStdout, s.script.bytes(kMaxPayload));
    }
  });
  expect_violation("of a read", Violation::kBeyondCredit, [](Scene& s) {
    for (int i = 0; i < 8 && !s.script.engine.dead(); ++i) {
      s.script.init(s.read, Type::kStdout, s.script.bytes(kMaxPayload));
    }
  });
  expect_violation("of a port", Violation::kBeyondCredit, [](Scene& s) {
    for (int i = 0; i < 8 && !s.script.engine.dead(); ++i) {
      s.script.init(s.dialed, Type::kStdout, s.script.bytes(kMaxPayload));
    }
  });
  expect_violation("credit of a port over the window", Violation::kTooMuchCredit,
                   [](Scene& s) { s.script.init(s.dialed, Credit{Stream::kStdin, 1}); });
  expect_violation("stdin credit over the window", Violation::kTooMuchCredit,
                   [](Scene& s) { s.script.init(s.running, Credit{Stream::kStdin, 1}); });
}

TEST(HostileInit, SmallFramesCostTheirHeaders) {
  Scene scene;
  std::size_t frames = 0;
  while (!scene.script.engine.dead()) {
    scene.script.init(scene.running, Type::kStdout, scene.script.bytes(1));
    ASSERT_LT(++frames, kWindow / kHeaderSize + 1);
    ASSERT_LE(scene.script.engine.client_out(scene.slot).size(), kWindow + 4096u);
  }
}

TEST(HostileInit, ASilentInitHoldsNoMoreThanItsBacklogAndNotTheClock) {
  EngineScript script;
  script.ready();
  const int slot = script.client();
  script.exec(slot, 1, {.flags = kExecStdin, .timeout_ms = 100});
  // Nobody takes what is for init; session stops reading clients before that grows.
  std::uint32_t id = 2;
  while (script.engine.wants_read(slot) && id < 1'000) {
    const std::string argument(50'000, 'z');
    script.say(slot, id++, Exec{0, 0, 0, kWindow, "/", {"x", argument}, {}});
  }
  EXPECT_LT(id, 1'000u);
  EXPECT_LT(script.engine.init_out().size(), Engine::kInitBacklog + 2 * kMaxFrame);
  script.at(script.now + 100);
  script.at(script.now + script.config.kill_grace + 1);
  EXPECT_TRUE(script.engine.dead());
  EXPECT_EQ(script.engine.take_events().at(0).type, ControlType::kKillBox);
}

TEST(HostileInit, EndOfInitIsNoViolation) {
  Scene scene;
  scene.script.engine.init_closed();
  const auto events = scene.script.engine.take_events();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].type, ControlType::kInitLost);
  EXPECT_EQ(events[0].reason, static_cast<std::uint32_t>(LostReason::kEof));
  EXPECT_EQ(scene.script.client_heard(scene.slot).size(),
            12u);  // eleven operations and the connection
}

TEST(EngineHostile, JobsAreNothingThatInitMaySpeakOf) {
  for (const Type type :
       {Type::kDetach, Type::kDetached, Type::kJobWait, Type::kJobSegment, Type::kJobSignal}) {
    expect_violation("a message of jobs", Violation::kUnknownType, [type](Scene& scene) {
      scene.script.init(scene.running, type, std::vector<std::uint8_t>{1, 0, 0, 0});
    });
  }
  expect_violation("the id of a wait", Violation::kForeignId, [](Scene& scene) {
    scene.script.job(1);
    // Slots are handed out from the top of a stack: the wait has the one that this stat had.
    scene.script.init(scene.stat, ErrorReply{Stage::kFile, 2});
    scene.script.say(scene.slot, 20, JobWait{1, 1'000});
    const std::uint32_t next_generation = scene.stat + (1u << 10);
    scene.script.init(next_generation, StatReply{FileType::kRegular, 0, 0, 0, 0, 0, ""});
  });
  expect_violation("output of an exec that has no window yet", Violation::kBeyondCredit,
                   [](Scene& scene) {
                     const auto id = scene.script.exec(scene.slot, 20, {.window = 0});
                     scene.script.init(id, Started{9});
                     scene.script.init(id, Type::kStdout, scene.script.bytes(1));
                   });
}

}  // namespace
}  // namespace temenos::session
