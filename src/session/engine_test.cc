#include "session/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "session/engine_script.h"

namespace temenos::session {
namespace {

using namespace box_wire;
using testing::ElementsAre;
using testing::IsEmpty;

std::vector<Type> types(const std::vector<Heard>& messages) {
  std::vector<Type> out;
  for (const auto& message : messages) out.push_back(message.type);
  return out;
}

std::vector<ControlType> event_types(Engine& engine) {
  std::vector<ControlType> out;
  for (const auto& event : engine.take_events()) out.push_back(event.type);
  return out;
}

TEST(Engine, GreetsAndIsReadyOnceInitHasGreeted) {
  EngineScript script;
  EXPECT_THAT(types(script.init_heard()), ElementsAre(Type::kHello));
  const int slot = script.engine.add_client().value();
  EXPECT_FALSE(script.engine.wants_read(slot));
  script.init(0, Hello{kMagic, kVersion, kFeatureCgroup});
  const auto events = script.engine.take_events();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].type, ControlType::kReady);
  EXPECT_EQ(events[0].detail, kFeatureCgroup);
  script.say(slot, 0, Hello{});
  const auto heard = script.client_heard(slot);
  ASSERT_THAT(types(heard), ElementsAre(Type::kHello));
  EXPECT_EQ(heard[0].as<Hello>().features, kFeatureCgroup);
}

TEST(Engine, MapsIdsOfSeveralClients) {
  EngineScript script;
  script.ready();
  const int a = script.client();
  const int b = script.client();
  const auto id_a = script.exec(a, 7);
  const auto id_b = script.exec(b, 7);
  ASSERT_NE(id_a, id_b);
  script.init(id_b, Started{22});
  script.init(id_b, Type::kStdout, script.bytes(3));
  script.init(id_a, Started{11});
  script.init(id_b, OutputEof{Stream::kStdout});
  script.init(id_b, Exited{false, 5});
  script.init(id_b, Done{});
  const auto heard_a = script.client_heard(a);
  const auto heard_b = script.client_heard(b);
  ASSERT_THAT(types(heard_a), ElementsAre(Type::kStarted));
  EXPECT_EQ(heard_a[0].as<Started>().pid, 11u);
  ASSERT_THAT(types(heard_b), ElementsAre(Type::kStarted, Type::kStdout, Type::kOutputEof,
                                          Type::kExited, Type::kDone));
  for (const auto& heard : heard_b) EXPECT_EQ(heard.id, 7u);
  EXPECT_EQ(heard_b[3].as<Exited>().value, 5);
  EXPECT_EQ(script.engine.live_operations(), 1);
  EXPECT_NE(script.exec(b, 7), id_b);  // the id is free again, init's is another
}

TEST(Engine, TimeoutKillsThenReportsThenAnyoneMayUseTheSlot) {
  EngineScript script;
  script.ready();
  const int slot = script.client();
  const auto id = script.exec(slot, 1, {.timeout_ms = 500});
  script.init(id, Started{5});
  EXPECT_EQ(script.engine.next_deadline(), 1'500u);
  script.at(1'499);
  EXPECT_THAT(script.init_heard(), IsEmpty());
  script.at(1'500);
  EXPECT_THAT(types(script.init_heard()), ElementsAre(Type::kKill));
  script.init(id, Exited{true, 9});
  script.init(id, Done{});
  const auto heard = script.client_heard(slot);
  ASSERT_EQ(heard.size(), 3u);
  EXPECT_EQ(heard[2].as<Done>().flags, kDoneTimedOut);
  script.at(100'000);
  EXPECT_FALSE(script.engine.dead());
}

TEST(Engine, AnEndThatCrossesTheTimeoutIsTimedOutAndKeepsItsExitCode) {
  EngineScript script;
  script.ready();
  const int slot = script.client();
  const auto id = script.exec(slot, 1, {.timeout_ms = 500});
  script.init(id, Started{5});
  script.at(1'500);
  script.init(id, Exited{false, 7});
  script.init(id, Done{});
  const auto heard = script.client_heard(slot);
  ASSERT_THAT(types(heard), ElementsAre(Type::kStarted, Type::kExited, Type::kDone));
  EXPECT_FALSE(heard[1].as<Exited>().signaled);
  EXPECT_EQ(heard[1].as<Exited>().value, 7);
  EXPECT_EQ(heard[2].as<Done>().flags, kDoneTimedOut);
}

TEST(Engine, ATreeThatSurvivesCostsTheBox) {
  EngineScript script;
  script.ready();
  const int slot = script.client();
  const int other = script.client();
  const auto id = script.exec(slot, 1, {.timeout_ms = 500});
  script.exec(other, 4);
  script.init(id, Started{5});
  script.at(1'500);
  script.at(3'499);
  EXPECT_FALSE(script.engine.dead());
  script.at(3'500);
  EXPECT_TRUE(script.engine.dead());
  const auto events = script.engine.take_events();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].type, ControlType::kKillBox);
  EXPECT_EQ(events[0].reason, static_cast<std::uint32_t>(KillReason::kTreeSurvived));
  const auto heard = script.client_heard(slot);
  ASSERT_THAT(types(heard), ElementsAre(Type::kStarted, Type::kExited, Type::kDone, Type::kError));
  EXPECT_EQ(heard[2].as<Done>().flags, kDoneTimedOut | kDoneBoxKilled | kDoneOutputLost);
  const auto theirs = script.client_heard(other);
  ASSERT_THAT(types(theirs), ElementsAre(Type::kError, Type::kError));
  EXPECT_EQ(theirs[0].id, 4u);
  EXPECT_EQ(theirs[0].as<ErrorReply>().stage, Stage::kBoxLost);
  EXPECT_TRUE(script.engine.closing(slot));
}

TEST(Engine, OutputCapDropsAndGoesOnGrantingWithoutTheClient) {
  EngineScript script;
  script.ready();
  const int slot = script.client();
  const auto id = script.exec(slot, 1, {.output_cap = 100});
  script.init(id, Started{5});
  script.init(id, Type::kStdout, script.bytes(60));
  script.init(id, Type::kStderr, script.bytes(60));
  const auto heard = script.client_heard(slot);
  ASSERT_EQ(heard.size(), 3u);
  EXPECT_EQ(heard[2].payload.size(), 40u);
  // Far more than a window, with no credit from the client.
  std::size_t granted = 64 * 1024;
  std::size_t total = 0;
  while (total < 4 * kWindow) {
    for (const auto& message : script.init_heard()) {
      if (message.type == Type::kCredit && message.as<Credit>().stream == Stream::kStdout) {
        granted += message.as<Credit>().bytes;
      }
    }
    ASSERT_GT(granted, 10'000u) << total;
    script.init(id, Type::kStdout, script.bytes(8'000));
    granted -= 8'012;
    total += 8'000;
    ASSERT_FALSE(script.engine.dead());
  }
  EXPECT_THAT(script.client_heard(slot), IsEmpty());
  script.init(id, Exited{false, 0});
  script.init(id, Done{});
  EXPECT_EQ(script.client_heard(slot).back().as<Done>().flags, kDoneTruncated);
}

TEST(Engine, AClientThatGoesHasItsOperationsKilledAndItsSlotFreed) {
  EngineScript script;
  script.ready();
  const int slot = script.client();
  const auto id = script.exec(slot, 1);
  script.init(id, Started{5});
  script.engine.remove_client(slot, script.now);
  EXPECT_THAT(types(script.init_heard()), ElementsAre(Type::kKill));
  EXPECT_EQ(script.client(), slot);
  script.init(id, Type::kStdout, script.bytes(100));
  script.init(id, Exited{true, 9});
  script.init(id, Done{});
  EXPECT_FALSE(script.engine.dead());
  EXPECT_THAT(script.client_heard(slot), IsEmpty());
  EXPECT_EQ(script.engine.live_operations(), 0);
  EXPECT_EQ(script.engine.pool_used(), 0u);
}

TEST(Engine, CreditIsWithheldFromInitWhileAClientDoesNotRead) {
  EngineScript script;
  script.ready();
  const int slot = script.client();
  const auto id = script.exec(slot, 1);
  script.init(id, Started{5});
  std::size_t granted = 64 * 1024;
  std::size_t sent = 0;
  for (;;) {
    for (const auto& message : script.init_heard()) {
      ASSERT_EQ(message.as<Credit>().stream, Stream::kStdout);
      granted += message.as<Credit>().bytes;
    }
    if (granted <= kHeaderSize) break;
    const std::size_t size = std::min<std::size_t>(granted - kHeaderSize, kMaxPayload);
    script.init(id, Type::kStdout, script.bytes(size));
    granted -= kHeaderSize + size;
    sent += kHeaderSize + size;
    ASSERT_LE(sent, kWindow);
  }
  EXPECT_GT(sent, kWindow - 1'000);  // the client's whole window, not more
  EXPECT_THAT(script.client_heard(slot).size(), testing::Gt(1u));
  EXPECT_THAT(script.init_heard(), IsEmpty());  // it has read, but not said that it takes more
  script.say(slot, 1, Credit{Stream::kStdout, 50'000});
  const auto heard = script.init_heard();
  ASSERT_THAT(types(heard), ElementsAre(Type::kCredit));
  EXPECT_EQ(heard[0].id, id);
  EXPECT_LE(heard[0].as<Credit>().bytes, 50'000u + 1'000);
}

TEST(Engine, AReadingClientGoesOnWhileOthersHoldTheWholePool) {
  EngineScript script;
  script.ready();
  for (int i = 0; i < 40; ++i) {
    const int hog = script.client();
    for (std::uint32_t id = 1; id <= 8; ++id) {
      const auto to = script.exec(hog, id);
      script.init(to, Started{5});
      // Whatever was granted at first, floor included.
      script.init(to, Type::kStdout, script.bytes(900));
      script.init(to, Type::kStderr, script.bytes(900));
    }
  }
  EXPECT_LE(script.engine.pool_used(), 8u << 20);
  script.init_heard();
  const int slot = script.client();
  const auto id = script.exec(slot, 1);
  script.init(id, Started{5});
  script.client_heard(slot);
  std::size_t total = 0;
  std::size_t granted = Engine::kFloor;  // at least
  while (total < 200'000) {
    ASSERT_GT(granted, kHeaderSize) << total;
    const std::size_t size = std::min<std::size_t>(granted - kHeaderSize, 900);
    script.init(id, Type::kStdout, script.bytes(size));
    granted -= kHeaderSize + size;
    total += size;
    ASSERT_FALSE(script.engine.dead());
    for (const auto& heard : script.client_heard(slot)) {
      script.say(
          slot, 1,
          Credit{Stream::kStdout, static_cast<std::uint32_t>(kHeaderSize + heard.payload.size())});
    }
    for (const auto& message : script.init_heard()) {
      if (message.id == id && message.type == Type::kCredit) granted += message.as<Credit>().bytes;
    }
  }
}

TEST(Engine, RefusesMoreThanItsOperationsAndItsClients) {
  EngineScript script;
  script.ready();
  const int slot = script.client();
  for (std::uint32_t id = 1; id <= Engine::kMaxOps; ++id) ASSERT_NE(script.exec(slot, id), 0u);
  EXPECT_LE(script.engine.pool_used(), 8u << 20);
  EXPECT_EQ(script.exec(slot, 5'000), 0u);
  const auto heard = script.client_heard(slot);
  ASSERT_THAT(types(heard), ElementsAre(Type::kError));
  EXPECT_EQ(heard[0].as<ErrorReply>().stage, Stage::kBusy);
  EXPECT_EQ(heard[0].id, 5'000u);
  for (int i = 1; i < Engine::kMaxClients; ++i) ASSERT_TRUE(script.engine.add_client());
  EXPECT_FALSE(script.engine.add_client());
}

TEST(Engine, StdinIsPassedOnWithinItsCredit) {
  EngineScript script;
  script.ready();
  const int slot = script.client();
  const auto id = script.exec(slot, 1, {.flags = kExecStdin});
  script.init(id, Started{5});
  script.say(slot, 1, Type::kStdin, script.bytes(60'000));
  const auto heard = script.init_heard();
  ASSERT_THAT(types(heard), ElementsAre(Type::kStdin));
  EXPECT_EQ(heard[0].payload.size(), 60'000u);
  script.init(id, Credit{Stream::kStdin, 60'012});
  EXPECT_THAT(types(script.client_heard(slot)), ElementsAre(Type::kStarted, Type::kCredit));
  script.say(slot, 1, Type::kStdinEof);
  EXPECT_THAT(types(script.init_heard()), ElementsAre(Type::kStdinEof));
  EXPECT_FALSE(script.engine.closing(slot));
}

TEST(Engine, AClientWithoutFormLosesItsConnectionOnly) {
  const auto refused = [](auto misstep) {
    EngineScript script;
    script.ready();
    const int other = script.client();
    const auto kept = script.exec(other, 1);
    const int slot = script.client();
    const auto id = script.exec(slot, 1, {.flags = kExecStdin});
    script.init(id, Started{5});
    script.client_heard(slot);
    misstep(script, slot);
    EXPECT_TRUE(script.engine.closing(slot));
    EXPECT_FALSE(script.engine.closing(other));
    EXPECT_FALSE(script.engine.dead());
    const auto heard = script.client_heard(slot);
    ASSERT_FALSE(heard.empty());
    EXPECT_EQ(heard.back().id, 0u);
    EXPECT_EQ(heard.back().as<ErrorReply>().stage, Stage::kProtocol);
    // What it had running is ended, and only that.
    const auto orders = script.init_heard();
    ASSERT_FALSE(orders.empty());
    EXPECT_EQ(orders.back().type, Type::kKill);
    EXPECT_EQ(orders.back().id, id);
    EXPECT_NE(id, kept);
  };
  refused([](EngineScript& s, int slot) {
    s.say(slot, 1, Exec{0, 0, 0, 1, "/", {"x"}, {}});  // id in use
  });
  refused([](EngineScript& s, int slot) { s.say(slot, 0, Ping{1}); });       // id 0
  refused([](EngineScript& s, int slot) { s.say(slot, 1, Started{4}); });    // init's message
  refused([](EngineScript& s, int slot) { s.say(slot, 0, Hello{}); });       // twice
  refused([](EngineScript& s, int slot) { s.say(slot, 1, Type::kStdin); });  // empty
  refused([](EngineScript& s, int slot) {
    s.say(slot, 1, Credit{Stream::kStdout, 100});
  });  // over the window
  refused([](EngineScript& s, int slot) {
    for (int i = 0; i < 5; ++i)
      s.say(slot, 1, Type::kStdin, s.bytes(kMaxPayload));  // beyond its credit
  });
  refused([](EngineScript& s, int slot) {
    s.say(slot, 1, Type::kStdinEof);
    s.say(slot, 1, Type::kStdin, s.bytes(1));
  });
  refused([](EngineScript& s, int slot) { s.client_bytes(slot, s.bytes(200)); });  // noise
  refused([](EngineScript& s, int slot) { s.say(slot, 9, Signal{0, false}); });
  refused(
      [](EngineScript& s, int slot) { s.say(slot, 9, Exec{0, 0, 0, 1, "relative", {"x"}, {}}); });
}

TEST(Engine, ATerminalIsResizedAndNothingElseIs) {
  EngineScript script;
  script.ready();
  const int slot = script.client();
  const auto id = script.exec(slot, 1, {.flags = kExecStdin | kExecTty, .rows = 24, .cols = 80});
  script.say(slot, 1, Resize{50, 132});
  auto heard = script.init_heard();
  ASSERT_THAT(types(heard), ElementsAre(Type::kResize));
  EXPECT_EQ(heard[0].id, id);
  EXPECT_EQ(heard[0].as<Resize>().cols, 132);
  script.init(id, Started{4});
  script.init(id, OutputEof{Stream::kStderr});
  script.say(slot, 1, Type::kKill);
  script.say(slot, 1, Resize{51, 133});  // it is being ended
  EXPECT_THAT(types(script.init_heard()), ElementsAre(Type::kKill));
  script.init(id, Exited{true, 9});
  script.init(id, OutputEof{Stream::kStdout});
  script.init(id, Done{});
  script.say(slot, 1, Resize{52, 134});  // it has ended
  EXPECT_FALSE(script.engine.closing(slot));
  EXPECT_EQ(script.engine.pool_used(), script.engine.client_out(slot).size());
  script.exec(slot, 2, {.flags = kExecStdin});
  script.say(slot, 2, Resize{50, 132});
  EXPECT_TRUE(script.engine.closing(slot));
}

TEST(Engine, ADialCarriesBytesBothWaysUntilBothHaveEnded) {
  EngineScript script;
  script.ready();
  const int slot = script.client();
  script.say(slot, 1, Dial{Dial::To::kTcp, 8080, 1'000});
  auto heard = script.init_heard();
  ASSERT_THAT(types(heard), ElementsAre(Type::kDial));
  const auto id = heard[0].id;
  EXPECT_EQ(heard[0].as<Dial>().port, 8080);
  EXPECT_EQ(heard[0].as<Dial>().window, 1'000u);
  script.init(id, Type::kDialed);
  script.say(slot, 1, Type::kStdin, script.bytes(5));
  script.init(id, Type::kStdout, script.bytes(7));
  script.init(id, Credit{Stream::kStdin, 17});
  script.say(slot, 1, Type::kStdinEof);
  EXPECT_THAT(types(script.init_heard()), ElementsAre(Type::kStdin, Type::kStdinEof));
  script.init(id, OutputEof{Stream::kStdout});
  script.init(id, FileDone{7});
  EXPECT_THAT(
      types(script.client_heard(slot)),
      ElementsAre(Type::kDialed, Type::kStdout, Type::kCredit, Type::kOutputEof, Type::kFileDone));
  EXPECT_EQ(script.engine.live_operations(), 0);
  EXPECT_EQ(script.engine.pool_used(), 0u);
  // Once it is there, it has no deadline; and it can break.
  script.say(slot, 2, Dial{Dial::To::kUnix, 0, kWindow, "/s"});
  const auto other = script.init_heard().at(0).id;
  script.init(other, Type::kDialed);
  script.at(script.now + 10 * script.config.start_timeout);
  script.init(other, ErrorReply{Stage::kFile, ECONNRESET});
  heard = script.client_heard(slot);
  ASSERT_THAT(types(heard), ElementsAre(Type::kDialed, Type::kError));
  EXPECT_EQ(heard[1].as<ErrorReply>().error, ECONNRESET);
  EXPECT_FALSE(script.engine.dead());
}

TEST(Engine, AChangeIsCancelledAndHasToEndInTime) {
  EngineScript script;
  script.ready();
  const int slot = script.client();
  script.say(slot, 1, Mkdir{true, 0700, "/a/b"});
  script.say(slot, 2, Remove{true, "/a"});
  auto heard = script.init_heard();
  ASSERT_THAT(types(heard), ElementsAre(Type::kMkdir, Type::kRemove));
  script.init(heard[0].id, FileDone{1});
  script.at(script.now + 10 * script.config.start_timeout);  // a large tree takes its time
  EXPECT_FALSE(script.engine.dead());
  script.say(slot, 2, Type::kKill);
  script.init(heard[1].id, ErrorReply{Stage::kCancelled, ECANCELED});
  EXPECT_THAT(types(script.client_heard(slot)), ElementsAre(Type::kFileDone, Type::kError));
  script.say(slot, 3, Remove{true, "/a"});
  script.engine.remove_client(slot, script.now);
  script.at(script.now + script.config.kill_grace);
  EXPECT_TRUE(script.engine.dead());
}

TEST(Engine, MessagesToAnOperationThatJustEndedAreNoFault) {
  EngineScript script;
  script.ready();
  const int slot = script.client();
  script.say(slot, 9, Type::kStdin, script.bytes(10));
  script.say(slot, 9, Type::kStdinEof);
  script.say(slot, 9, Credit{Stream::kStdout, 10});
  script.say(slot, 9, Signal{15, true});
  script.say(slot, 9, Type::kKill);
  EXPECT_FALSE(script.engine.closing(slot));
  EXPECT_THAT(script.init_heard(), IsEmpty());
}

TEST(Engine, LongRequestsOfTwoClientsAreAssembledOneAfterTheOther) {
  EngineScript script;
  script.ready();
  const int a = script.client();
  const int b = script.client();
  const std::string text(300'000, 'y');
  ByteQueue wire;
  put(wire, 1, Exec{0, 0, 0, kWindow, "/", {"x", text}, {}});
  std::vector<std::uint8_t> bytes;
  iovec part[1];
  while (wire.peek(part) == 1) {
    const auto* from = static_cast<const std::uint8_t*>(part[0].iov_base);
    bytes.insert(bytes.end(), from, from + part[0].iov_len);
    wire.consume(part[0].iov_len);
  }
  const Bytes all(bytes);
  script.client_bytes(a, all.first(100'000));
  // b may start only when a has ended: its first frame waits in its buffer.
  const std::size_t first_frame = kMaxFrame;
  script.client_bytes(b, all.first(first_frame));
  EXPECT_FALSE(script.engine.wants_read(b));
  EXPECT_THAT(script.init_heard(), IsEmpty());
  script.client_bytes(a, all.subspan(100'000));
  EXPECT_TRUE(script.engine.wants_read(b));
  script.client_bytes(b, all.subspan(first_frame));
  const auto heard = script.init_heard();
  ASSERT_THAT(types(heard), ElementsAre(Type::kExec, Type::kExec));
  for (const auto& message : heard) {
    Exec exec;
    ASSERT_TRUE(decode(message.payload, exec));
    EXPECT_EQ(exec.argv[1], text);
  }
}

TEST(Engine, AClientThatStopsInTheMiddleOfARequestDoesNotHoldTheOthers) {
  EngineScript script;
  script.ready();
  const int a = script.client();
  const int b = script.client();
  std::uint8_t header[kHeaderSize];
  put_header({4, static_cast<std::uint16_t>(Type::kExec), kFlagMore, 1}, header);
  std::vector<std::uint8_t> frame(header, header + kHeaderSize);
  frame.resize(kHeaderSize + 4);
  script.client_bytes(a, frame);
  script.client_bytes(b, frame);
  EXPECT_FALSE(script.engine.wants_read(b));
  script.at(script.now + script.config.assembly_timeout);
  EXPECT_TRUE(script.engine.closing(a));
  EXPECT_TRUE(script.engine.wants_read(b));
}

TEST(Engine, StopTellsEveryone) {
  EngineScript script;
  script.ready();
  const int slot = script.client();
  script.exec(slot, 3);
  script.engine.stop();
  EXPECT_TRUE(script.engine.dead());
  const auto heard = script.client_heard(slot);
  ASSERT_THAT(types(heard), ElementsAre(Type::kError, Type::kError));
  EXPECT_EQ(heard[0].id, 3u);
  EXPECT_TRUE(script.engine.closing(slot));
  EXPECT_THAT(event_types(script.engine), IsEmpty());
  EXPECT_FALSE(script.engine.add_client());
}

}  // namespace
}  // namespace temenos::session
