#include "keeper/keeper.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>

#include "base/host_ids.h"
#include "keeper/box_limits.h"
#include "keeper/callers.h"
#include "keeper/egress_watch.h"
#include "keeper/etc_parts.h"
#include "keeper/messages.h"
#include "sys/file_sys.h"
#include "sys/process_sys.h"

namespace temenos::keeper {
namespace {

class RemoveBox : public ::testing::Test {
 protected:
  void SetUp() override {
    path_ = ::testing::TempDir() + "temenos-keeper-XXXXXX";
    ASSERT_NE(mkdtemp(path_.data()), nullptr);
    dir_ = UniqueFd(open(path_.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  }
  void TearDown() override { std::filesystem::remove_all(path_); }
  bool there() const { return access((path_ + "/box").c_str(), F_OK) == 0; }
  std::string path_;
  UniqueFd dir_;
};

TEST_F(RemoveBox, NothingIsNoError) { EXPECT_TRUE(remove_box(dir_.get(), plan_ids())); }

TEST_F(RemoveBox, AnEmptyOne) {
  ASSERT_EQ(mkdir((path_ + "/box").c_str(), 0755), 0);
  EXPECT_TRUE(remove_box(dir_.get(), plan_ids()));
  EXPECT_FALSE(there());
}

TEST_F(RemoveBox, WhatTheBoxLeftWhateverItsModes) {
  for (const char* name : {"upper/a/b", "work/work", "base"}) {
    ASSERT_TRUE(std::filesystem::create_directories(path_ + "/box/" + name));
  }
  std::ofstream(path_ + "/box/upper/a/b/file") << "x";
  ASSERT_EQ(symlink("/etc/passwd", (path_ + "/box/upper/link").c_str()), 0);
  const IdPlan plan = plan_ids();
  if (plan.as_root) {
    // As the box's root made them.
    for (const auto& entry : std::filesystem::recursive_directory_iterator(path_)) {
      ASSERT_EQ(lchown(entry.path().c_str(), kBoxIdBase + 5, kBoxIdBase), 0);
    }
  }
  ASSERT_EQ(chmod((path_ + "/box/upper/a/b").c_str(), 0), 0);
  ASSERT_EQ(chmod((path_ + "/box/upper/a").c_str(), 0), 0);
  ASSERT_EQ(chmod((path_ + "/box/work" + "/work").c_str(), 0), 0);
  const auto removed = remove_box(dir_.get(), plan);
  EXPECT_TRUE(removed) << removed.error().to_string();
  EXPECT_FALSE(there());
  EXPECT_EQ(access("/etc/passwd", F_OK), 0);
}

TEST_F(RemoveBox, ASymlinkInItsPlaceIsNotFollowed) {
  ASSERT_TRUE(std::filesystem::create_directories(path_ + "/victim/upper/keep"));
  ASSERT_EQ(symlink("victim", (path_ + "/box").c_str()), 0);
  EXPECT_FALSE(remove_box(dir_.get(), plan_ids()));
  EXPECT_TRUE(std::filesystem::exists(path_ + "/victim/upper/keep"));
}

// Keeper ends boxes: it may not stand still because of a session that reads nothing.
TEST(Callers, ASessionThatReadsNothingHoldsUpNobody) {
  auto [starter, keepers] = *sys::socket_pair(SOCK_SEQPACKET);
  auto [session, far] = *sys::socket_pair(SOCK_SEQPACKET);
  Callers callers(std::move(keepers), UniqueFd());
  callers.box_is_ready();
  Message attach;
  attach.kind = Message::kAttach;
  const int fd = session.get();
  const auto ask = [&, &caller = starter] {
    std::vector<pollfd> polls;
    callers.add_polls(polls);
    (void)sys::send_with_fds(caller.get(), {reinterpret_cast<const char*>(&attach), sizeof attach},
                             {&fd, 1});
    polls[1].revents = POLLIN;
    EgressWatch egress;
    (void)callers.serve(polls, fd, BoxLimits(), egress);
    return receive_message(caller.get());
  };
  auto asked = std::async(std::launch::async, [&] {
    for (int i = 0; i < 900; ++i) {
      const auto reply = ask();
      if (!reply || reply->kind != Message::kOk) return reply ? to_error(*reply).code : Code::kIo;
    }
    return Code::kTimedOut;
  });
  const bool in_time = asked.wait_for(std::chrono::seconds(20)) == std::future_status::ready;
  if (!in_time) far.reset();  // ends the call that waits
  EXPECT_TRUE(in_time);
  EXPECT_EQ(asked.get(), Code::kExhausted);
}

// Another process may find the socket of a box that is being started: before the box's network has
// refused something nobody gets to where commands are run.
TEST(Callers, NobodyGetsToASessionBeforeTheBoxIsReady) {
  auto [starter, keepers] = *sys::socket_pair(SOCK_SEQPACKET);
  auto [session, far] = *sys::socket_pair(SOCK_SEQPACKET);
  Callers callers(std::move(keepers), UniqueFd());
  EgressWatch egress;
  const auto ask = [&](std::uint32_t kind, int fds) {
    Message message;
    message.kind = kind;
    const int both[] = {session.get(), session.get()};
    EXPECT_TRUE(send_message(starter.get(), message, std::span(both).first(fds)));
    std::vector<pollfd> polls;
    callers.add_polls(polls);
    polls[1].revents = POLLIN;
    (void)callers.serve(polls, session.get(), BoxLimits(), egress);
    auto reply = receive_message(starter.get());
    return reply ? std::move(*reply) : Message();
  };
  EXPECT_EQ(ask(Message::kPing, 0).kind, Message::kOk);
  for (const auto& [kind, fds] : {std::pair(Message::kAttach, 1), {Message::kAddJob, 2}}) {
    const Message reply = ask(kind, fds);
    EXPECT_EQ(reply.kind, Message::kFailed);
    // As if nobody ran it yet: whoever asks waits for his turn to start it, and asks again.
    EXPECT_EQ(to_error(reply).code, Code::kNotFound);
  }
  pollfd told{far.get(), POLLIN, 0};
  EXPECT_EQ(poll(&told, 1, 0), 0);
  callers.box_is_ready();
  EXPECT_EQ(ask(Message::kAttach, 1).kind, Message::kOk);
  EXPECT_EQ(poll(&told, 1, 0), 1);
}

TEST(NoUserNamespaces, SaysWhatToDo) {
  for (const int err : {EPERM, ENOSPC, EUSERS, EAGAIN}) {
    const Error error = no_user_namespaces(err);
    EXPECT_EQ(error.code, Code::kUnsupported);
    EXPECT_EQ(error.sys_errno, err);
    EXPECT_FALSE(error.hint.empty());
  }
}

TEST(EtcParts, HoldNoSecretAndNotTheHostsIdentity) {
  for (const auto& name : kHostEtc) {
    for (const std::string secret :
         {"shadow", "gshadow", "passwd", "group", "ssl/private", "ssh", "machine-id", "sudoers",
          "sudoers.d", "hosts", "hostname", "resolv.conf", "apt", "environment", "fstab"}) {
      EXPECT_NE(name, secret);
      // Nor a directory that holds it.
      EXPECT_NE(secret.rfind(name + "/", 0), 0u) << name;
    }
    EXPECT_NE(name[0], '/');
    EXPECT_EQ(name.find(".."), std::string::npos);
  }
}

TEST(EtcParts, TheGeneratedOnesKnowTheBoxOnly) {
  std::string passwd;
  bool resolver = false;
  for (const auto& file : generated_etc("inside", NetworkMode::kNone)) {
    if (file.name == "passwd") passwd = file.content;
    if (file.name == "hosts")
      EXPECT_NE(file.content.find("127.0.0.1 localhost inside"), std::string::npos);
    if (file.name == "resolv.conf") resolver = true;
  }
  EXPECT_EQ(passwd.rfind("root:x:0:0:root:/root:", 0), 0u);
  EXPECT_NE(passwd.find("\nuser:x:1000:1000:"), std::string::npos);
  EXPECT_TRUE(resolver);
  for (const auto& file : generated_etc("inside", NetworkMode::kFiltered)) {
    if (file.name == "resolv.conf") EXPECT_EQ(file.content, "nameserver 198.18.0.1\n");
  }
  for (const auto& file : generated_etc("inside", NetworkMode::kHost))
    EXPECT_NE(file.name, "resolv.conf");
}

}  // namespace
}  // namespace temenos::keeper
