#include "keeper/messages.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "sys/process_sys.h"

namespace temenos::keeper {
namespace {

TEST(Messages, AnErrorTravels) {
  Error error;
  error.code = Code::kExhausted;
  error.what = "making /data/upper";
  error.context = {"outer", "inner"};
  error.sys_errno = ENOSPC;
  error.hint = "free some disk space";
  const Error back = to_error(failure(error));
  EXPECT_EQ(back.code, Code::kExhausted);
  EXPECT_EQ(back.to_string(), error.to_string());
}

TEST(Messages, LongTextsAreCutAndEnded) {
  Error error;
  error.what = std::string(5000, 'w');
  error.hint = std::string(5000, 'h');
  const Error back = to_error(failure(error));
  EXPECT_EQ(back.what, std::string(sizeof(Message::what) - 1, 'w'));
  EXPECT_EQ(back.hint, std::string(sizeof(Message::hint) - 1, 'h'));
}

TEST(Messages, HostileFieldsAreBounded) {
  Message message;
  memset(&message, 0xff, sizeof message);  // no NUL in any text, every number out of range
  EXPECT_EQ(evidence_of(message).size(), sizeof message.evidence);
  EXPECT_EQ(password_of(message.proxy).size(), sizeof message.proxy.password);
  Error error = to_error(message);
  EXPECT_EQ(error.code, Code::kInternal);
  EXPECT_EQ(error.what.size(), sizeof message.what);
  EXPECT_EQ(error.hint.size(), sizeof message.hint);
  EXPECT_EQ(error.sys_errno, 0);
  memcpy(message.what, "a\x1b[31m\nb", 8);
  EXPECT_EQ(to_error(message).to_string().find('\x1b'), std::string::npos);
  message.sys_errno = 1 << 30;
  EXPECT_EQ(to_error(message).sys_errno, 4095);
}

TEST(Messages, OnlyAWholeOneIsTaken) {
  auto pair = sys::socket_pair(SOCK_SEQPACKET);
  ASSERT_TRUE(pair);
  Message message;
  message.kind = Message::kStarted;
  ASSERT_TRUE(send_message(pair->first.get(), message));
  EXPECT_EQ(receive_message(pair->second.get())->kind, Message::kStarted);
  for (const std::size_t size : {std::size_t{1}, sizeof(Message) - 1, sizeof(Message) + 1}) {
    ASSERT_TRUE(sys::send_with_fds(pair->first.get(), std::string(size, 'x'), {}));
    const auto bad = receive_message(pair->second.get());
    ASSERT_FALSE(bad);
    EXPECT_EQ(bad.error().code, Code::kProtocol);
  }
  pair->first.reset();
  EXPECT_EQ(receive_message(pair->second.get()).error().code, Code::kBoxDied);
}

TEST(Messages, DescriptorsComeWhereTheyAreWanted) {
  auto pair = sys::socket_pair(SOCK_SEQPACKET);
  ASSERT_TRUE(pair);
  Message message;
  message.kind = Message::kNetwork;
  const int fds[] = {pair->first.get(), pair->first.get()};
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(send_message(pair->first.get(), message, fds));
  EXPECT_EQ(receive_message_with_fds(pair->second.get(), 2)->fds.size(), 2u);
  // More than agreed, or any where none are: an error, and none of them stays open.
  EXPECT_FALSE(receive_message_with_fds(pair->second.get(), 1));
  EXPECT_FALSE(receive_message(pair->second.get()));
}

}  // namespace
}  // namespace temenos::keeper
