#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>

#include "session/engine_script.h"

namespace temenos::session {
namespace {

using namespace box_wire;
using testing::Contains;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::Not;

std::vector<Type> types(const std::vector<Heard>& messages) {
  std::vector<Type> out;
  for (const auto& message : messages) out.push_back(message.type);
  return out;
}

struct JobScript : EngineScript {
  JobScript() { ready(); }
  void finish(std::uint32_t id, std::uint8_t code = 0) {
    init(id, OutputEof{Stream::kStdout});
    init(id, OutputEof{Stream::kStderr});
    init(id, Exited{false, code});
    init(id, Done{});
  }
  // The one message that `slot` has for us, an ERROR.
  ErrorReply refusal(int slot) {
    const auto heard = client_heard(slot);
    EXPECT_THAT(types(heard), ElementsAre(Type::kError));
    return heard.empty() ? ErrorReply{} : heard[0].as<ErrorReply>();
  }
};

TEST(EngineJobs, AJobFromItsFirstByte) {
  JobScript script;
  const int slot = script.client();
  const int job = script.job(7);
  script.say(slot, 1, Exec{0, 0, 0, 0, "/", {"x"}, {}});
  const auto asked = script.init_heard();
  ASSERT_THAT(types(asked), ElementsAre(Type::kExec));
  Exec exec;
  ASSERT_TRUE(decode(asked[0].payload, exec));
  EXPECT_EQ(exec.window, 0u);
  script.say(slot, 1, Detach{7});
  EXPECT_THAT(types(script.init_heard()), ElementsAre(Type::kCredit, Type::kCredit));
  EXPECT_THAT(types(script.client_heard(slot)), ElementsAre(Type::kDetached));

  const auto id = asked[0].id;
  script.init(id, Started{5});
  script.init(id, Type::kStdout, script.bytes(3));
  script.engine.remove_client(slot, script.now);  // its client is of no concern any more
  script.init(id, Type::kStderr, script.bytes(4));
  EXPECT_FALSE(script.engine.closing(job));
  script.finish(id, 3);
  const auto spool = script.client_heard(job);
  EXPECT_THAT(types(spool),
              ElementsAre(Type::kStarted, Type::kStdout, Type::kStderr, Type::kOutputEof,
                          Type::kOutputEof, Type::kExited, Type::kDone));
  for (const auto& message : spool) EXPECT_EQ(message.id, kJobFrameId);
  EXPECT_EQ(spool[5].as<Exited>().value, 3);
  EXPECT_THAT(script.init_heard(), Not(Contains(testing::Field(&Heard::type, Type::kKill))));

  EXPECT_TRUE(script.engine.closing(job));
  script.spooled(job);
  const auto events = script.engine.take_events();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].type, ControlType::kJobOver);
  EXPECT_EQ(events[0].detail, 7u);
  EXPECT_EQ(script.engine.live_operations(), 0);
  EXPECT_EQ(script.engine.pool_used(), 0u);
  EXPECT_EQ(script.job(7), job);  // number and slot are free again
}

TEST(EngineJobs, ARunningExecIsDetachedWithItsStdinClosed) {
  JobScript script;
  const int slot = script.client();
  const int job = script.job(7);
  const auto id = script.exec(slot, 4, {.flags = kExecStdin, .timeout_ms = 500});
  script.init(id, Started{5});
  script.init(id, Type::kStdout, script.bytes(10));
  script.say(slot, 4, Type::kStdin, script.bytes(3));
  script.say(slot, 4, Detach{7});
  EXPECT_THAT(types(script.client_heard(slot)),
              ElementsAre(Type::kStarted, Type::kStdout, Type::kDetached));
  EXPECT_THAT(types(script.init_heard()), Contains(Type::kStdinEof));
  // What crossed the end of the operation for its client is nobody's.
  script.say(slot, 4, Credit{Stream::kStdout, 100});
  script.say(slot, 4, Type::kStdin, script.bytes(3));
  script.say(slot, 4, Signal{2, true});
  script.say(slot, 4, Type::kKill);
  EXPECT_THAT(script.init_heard(), IsEmpty());
  EXPECT_FALSE(script.engine.closing(slot));
  // Its stdin is no longer anybody's either.
  script.init(id, Credit{Stream::kStdin, 3});
  script.init(id, Type::kStdinClosed);
  script.init(id, Type::kStdout, script.bytes(20));
  // The id is the client's again, and the time-out goes on.
  EXPECT_NE(script.exec(slot, 4), 0u);
  script.at(script.now + 500);
  EXPECT_THAT(types(script.init_heard()), ElementsAre(Type::kKill));
  script.init(id, Exited{true, 9});
  script.init(id, Type::kStderr, script.bytes(5));
  script.init(id, Done{});
  const auto spool = script.client_heard(job);
  // How it ended comes at the very end, both parts of it together.
  ASSERT_THAT(types(spool), ElementsAre(Type::kStdout, Type::kStderr, Type::kExited, Type::kDone));
  EXPECT_EQ(spool[0].payload.size(), 20u);
  EXPECT_EQ(spool[3].as<Done>().flags, kDoneTimedOut);
}

TEST(EngineJobs, OutputFlowsAsFastAsTheSpoolTakesIt) {
  JobScript script;
  const int slot = script.client();
  const int job = script.job(7);
  const auto id = script.start_job(slot, 1, 7);
  script.init(id, Started{5});
  // A spool that takes nothing: the job gets its share and no more.
  std::size_t credit = 0;
  std::size_t sent = 0;
  const auto pump = [&](std::size_t enough) {
    while (sent < enough) {
      for (const auto& heard : script.init_heard()) {
        if (heard.type == Type::kCredit && heard.as<Credit>().stream == Stream::kStdout) {
          credit += heard.as<Credit>().bytes;
        }
      }
      const std::size_t room = credit - sent;
      if (room <= kHeaderSize) return;
      const std::size_t size = std::min(room - kHeaderSize, kMaxPayload);
      script.init(id, Type::kStdout, script.bytes(size));
      sent += kHeaderSize + size;
    }
  };
  pump(4 * Engine::kPerClient);
  EXPECT_GE(sent, Engine::kPerClient / 2);
  EXPECT_LE(sent, Engine::kPerClient + 64 * Engine::kFloor);
  EXPECT_NE(script.exec(slot, 9), 0u);  // a client's next exec is not held up by it
  const std::size_t before = sent;
  EXPECT_THAT(script.client_heard(job), Not(IsEmpty()));
  pump(before + 4 * Engine::kPerClient);
  EXPECT_GT(sent, before + Engine::kPerClient / 2);
  EXPECT_FALSE(script.engine.dead());
}

// A job is there for hours, and most of them say nothing for most of that time.
TEST(EngineJobs, JobsThatAreSilentLeaveThePoolToOthers) {
  JobScript script;
  const int slot = script.client();
  for (std::uint32_t number = 1; number <= kMaxJobs; ++number) {
    script.job(number);
    script.init(script.start_job(slot, number, number), Started{5});
  }
  script.client_heard(slot);
  script.init_heard();
  script.say(slot, 99, Exec{0, 0, 0, kWindow, "/", {"x"}, {}});
  const auto asked = script.init_heard();
  ASSERT_THAT(types(asked), ElementsAre(Type::kExec));
  Exec exec;
  ASSERT_TRUE(decode(asked[0].payload, exec));
  EXPECT_GE(exec.window, 64u * 1024);
}

TEST(EngineJobs, ARefusedDetachEndsTheOperation) {
  JobScript script;
  const int slot = script.client();
  script.job(7);
  script.start_job(slot, 1, 7);
  script.client_heard(slot);
  script.init_heard();
  // No such job, and one that an exec has.
  for (const std::uint32_t number : {8u, 7u}) {
    script.exec(slot, 2);
    script.say(slot, 2, Detach{number});
    EXPECT_EQ(script.refusal(slot).error, ENOENT);
    EXPECT_THAT(types(script.init_heard()), ElementsAre(Type::kKill));
  }
  // Not an exec. The job has no use then and is over.
  const int other = script.job(9);
  script.say(slot, 3, Stat{false, "/a"});
  script.init_heard();
  script.say(slot, 3, Detach{9});
  EXPECT_EQ(script.refusal(slot).error, EINVAL);
  EXPECT_THAT(types(script.init_heard()), ElementsAre(Type::kKill));
  EXPECT_EQ(script.refusal(other).stage, Stage::kCancelled);
  EXPECT_TRUE(script.engine.closing(other));
  EXPECT_FALSE(script.engine.closing(slot));
  for (const std::uint32_t number : {0u, kMaxJob + 1}) {
    const int rude = script.client();
    script.say(rude, 5, Detach{number});
    EXPECT_TRUE(script.engine.closing(rude));
  }
}

TEST(EngineJobs, AnExecThatEndedIsNoJob) {
  JobScript script;
  const int slot = script.client();
  const int over = script.job(7);
  const int ending = script.job(8);
  const auto first = script.exec(slot, 1);
  script.init(first, Started{5});
  script.finish(first);
  script.say(slot, 1, Detach{7});
  EXPECT_EQ(script.refusal(over).stage, Stage::kCancelled);
  const auto second = script.exec(slot, 2);
  script.init(second, Started{5});
  script.init(second, Exited{false, 3});
  script.say(slot, 2, Detach{8});
  EXPECT_EQ(script.refusal(ending).stage, Stage::kCancelled);
  script.init(second, Done{});
  EXPECT_THAT(types(script.client_heard(slot)),
              ElementsAre(Type::kStarted, Type::kOutputEof, Type::kOutputEof, Type::kExited,
                          Type::kDone, Type::kStarted, Type::kExited, Type::kDone));
  EXPECT_THAT(script.init_heard(), IsEmpty());
}

TEST(EngineJobs, WhatNobodyClaimsIsOver) {
  JobScript script;
  const int job = script.job(7);
  script.at(script.now + script.config.claim_timeout - 1);
  EXPECT_FALSE(script.engine.closing(job));
  script.at(script.now + 1);
  EXPECT_TRUE(script.engine.closing(job));
  EXPECT_EQ(script.refusal(job).stage, Stage::kCancelled);
  script.spooled(job);
  EXPECT_EQ(script.engine.next_deadline(), kNever);
}

// Its files were removed since no client could start it, and the number was given again.
TEST(EngineJobs, ANumberThatNobodyClaimedGetsItsNewFiles) {
  JobScript script;
  const int slot = script.client();
  const int job = script.job(7);
  script.at(script.now + script.config.claim_timeout - 1);
  EXPECT_EQ(script.job(7), job);
  script.at(script.now + 1);
  EXPECT_FALSE(script.engine.closing(job));  // its time began anew
  script.start_job(slot, 1, 7);
  EXPECT_THAT(types(script.client_heard(slot)), ElementsAre(Type::kDetached));
  EXPECT_FALSE(script.engine.add_job(7, script.now));  // an exec has it
}

TEST(EngineJobs, WaitsEndWithTheJobTheTimeOrTheClient) {
  JobScript script;
  const int slot = script.client();
  const int job = script.job(7);
  const auto id = script.start_job(slot, 1, 7);
  script.client_heard(slot);
  script.init_heard();
  script.say(slot, 2, JobWait{8, 100});
  EXPECT_EQ(script.refusal(slot).error, ENOENT);
  script.say(slot, 2, JobWait{7, 0});
  auto heard = script.client_heard(slot);
  ASSERT_THAT(types(heard), ElementsAre(Type::kFileDone));
  EXPECT_EQ(heard[0].as<FileDone>().count, 0u);

  script.say(slot, 2, JobWait{7, 100});
  script.at(script.now + 99);
  EXPECT_THAT(script.client_heard(slot), IsEmpty());
  script.at(script.now + 1);
  heard = script.client_heard(slot);
  ASSERT_THAT(types(heard), ElementsAre(Type::kFileDone));
  EXPECT_EQ(heard[0].as<FileDone>().count, 0u);

  script.say(slot, 2, JobWait{7, 100'000});
  script.say(slot, 2, Type::kKill);
  EXPECT_EQ(script.refusal(slot).stage, Stage::kCancelled);

  const int leaver = script.client();
  script.say(leaver, 2, JobWait{7, 100'000});
  EXPECT_EQ(script.engine.live_operations(), 2);
  script.engine.remove_client(leaver, script.now);
  EXPECT_EQ(script.engine.live_operations(), 1);

  script.say(slot, 2, JobWait{7, 100'000});
  script.init(id, Started{5});
  script.finish(id);
  EXPECT_THAT(script.client_heard(slot), IsEmpty());  // its spool is not whole yet
  script.client_heard(job);
  script.spooled(job);
  heard = script.client_heard(slot);
  ASSERT_THAT(types(heard), ElementsAre(Type::kFileDone));
  EXPECT_EQ(heard[0].as<FileDone>().count, 1u);
  EXPECT_EQ(script.engine.live_operations(), 0);
  // Of all this init has heard nothing.
  EXPECT_THAT(types(script.init_heard()), Not(Contains(Type::kKill)));
}

TEST(EngineJobs, SignalsReachTheJob) {
  JobScript script;
  const int slot = script.client();
  const int job = script.job(7);
  script.say(slot, 2, JobSignal{7, 15, true});
  EXPECT_EQ(script.refusal(slot).error, ENOENT);  // not begun
  const auto id = script.start_job(slot, 1, 7);
  script.init(id, Started{5});
  script.client_heard(slot);
  script.init_heard();
  script.say(slot, 2, JobSignal{7, 15, true});
  EXPECT_THAT(types(script.client_heard(slot)), ElementsAre(Type::kFileDone));
  auto asked = script.init_heard();
  ASSERT_THAT(types(asked), ElementsAre(Type::kSignal));
  EXPECT_EQ(asked[0].id, id);
  EXPECT_EQ(asked[0].as<Signal>().signal, 15);
  EXPECT_TRUE(asked[0].as<Signal>().tree);
  script.say(slot, 2, JobSignal{7, 0, false});
  script.say(slot, 3, JobSignal{7, 15, true});  // too late for it, and harmless
  EXPECT_THAT(types(script.client_heard(slot)), ElementsAre(Type::kFileDone, Type::kFileDone));
  EXPECT_THAT(types(script.init_heard()), ElementsAre(Type::kKill));
  script.init(id, Exited{true, 9});
  script.init(id, Done{});
  script.say(slot, 2, JobSignal{7, 9, true});
  EXPECT_EQ(script.refusal(slot).error, ENOENT);
  script.client_heard(job);
  script.spooled(job);
  script.say(slot, 2, JobSignal{7, 9, true});
  EXPECT_EQ(script.refusal(slot).error, ENOENT);
}

TEST(EngineJobs, ALostBoxIsTheEndOfEachSpool) {
  JobScript script;
  const int slot = script.client();
  const int running = script.job(7);
  const int unclaimed = script.job(8);
  const auto id = script.start_job(slot, 1, 7);
  script.init(id, Started{5});
  script.say(slot, 2, JobWait{7, 100'000});
  script.client_heard(slot);
  script.engine.init_closed();
  const auto spool = script.client_heard(running);
  ASSERT_THAT(types(spool), ElementsAre(Type::kStarted, Type::kError));
  EXPECT_EQ(spool[1].as<ErrorReply>().stage, Stage::kBoxLost);
  EXPECT_EQ(spool[1].id, kJobFrameId);
  EXPECT_EQ(script.refusal(unclaimed).stage, Stage::kBoxLost);
  EXPECT_TRUE(script.engine.closing(running) && script.engine.closing(unclaimed));
  const auto heard = script.client_heard(slot);
  ASSERT_THAT(types(heard), ElementsAre(Type::kError, Type::kError));
  EXPECT_EQ(heard[0].id, 2u);
  EXPECT_FALSE(script.engine.add_job(9, script.now));
}

TEST(EngineJobs, ATreeThatSurvivesIsTheJobsEndToo) {
  JobScript script;
  const int slot = script.client();
  const int job = script.job(7);
  const auto id = script.start_job(slot, 1, 7);
  script.init(id, Started{5});
  const int exited = script.job(8);
  const auto other = script.start_job(slot, 2, 8);
  script.init(other, Started{6});
  script.init(other, Exited{false, 4});
  script.say(slot, 2, JobSignal{7, 0, false});
  script.say(slot, 2, JobSignal{8, 0, false});
  script.at(script.now + script.config.kill_grace + script.config.kill_grace_each);
  EXPECT_TRUE(script.engine.dead());
  const auto theirs = script.client_heard(exited);
  ASSERT_THAT(types(theirs), ElementsAre(Type::kStarted, Type::kExited, Type::kDone));
  EXPECT_EQ(theirs[1].as<Exited>().value, 4);
  const auto spool = script.client_heard(job);
  ASSERT_THAT(types(spool), ElementsAre(Type::kStarted, Type::kExited, Type::kDone));
  EXPECT_TRUE(spool[1].as<Exited>().signaled);
  EXPECT_EQ(spool[2].as<Done>().flags, kDoneBoxKilled | kDoneOutputLost);
}

TEST(EngineJobs, JobsAreBounded) {
  JobScript script;
  EXPECT_FALSE(script.engine.add_job(0, script.now));
  EXPECT_FALSE(script.engine.add_job(kMaxJob + 1, script.now));
  for (std::uint32_t number = 1; number <= kMaxJobs; ++number) script.job(number);
  EXPECT_FALSE(script.engine.add_job(99, script.now));
  script.at(script.now + script.config.claim_timeout);
  for (int slot = Engine::kMaxClients; slot < Engine::kSlots; ++slot) script.spooled(slot);
  script.job(99);
  // Clients still have all their slots.
  for (int i = 0; i < Engine::kMaxClients; ++i) script.client();
}

}  // namespace
}  // namespace temenos::session
