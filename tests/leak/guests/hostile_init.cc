// Takes the place of temenos-init and breaks the box protocol (wire/box_protocol.h) in the way that
// the file /leak/way names. Descriptor 0 is the socket to the session.
#include <fcntl.h>
#include <poll.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>

#include "wire/box_protocol.h"

namespace {

using namespace temenos;
using namespace temenos::box_wire;

void wait_for(short events) {
  pollfd fd{0, events, 0};
  (void)poll(&fd, 1, -1);
}

void send(ByteQueue& out) {
  while (!out.empty()) {
    iovec parts[8];
    const std::size_t n = out.peek(parts);
    const ssize_t sent = writev(0, parts, static_cast<int>(n));
    if (sent > 0) {
      out.consume(static_cast<std::size_t>(sent));
    } else if (errno == EAGAIN || errno == EINTR) {
      wait_for(POLLOUT);
    } else {
      _exit(1);
    }
  }
}

void send_header(std::uint32_t length, std::uint16_t type, std::uint16_t flags, std::uint32_t id) {
  std::uint8_t bytes[kHeaderSize];
  put_header({length, type, flags, id}, bytes);
  ByteQueue out;
  out.append(bytes);
  send(out);
}

template <typename M>
void say(std::uint32_t id, const M& message) {
  ByteQueue out;
  put(out, id, message);
  send(out);
}

void say_bytes(std::uint32_t id, Type type, std::size_t size) {
  static const std::string bytes(kMaxPayload, 'x');
  ByteQueue out;
  put(out, id, type, {reinterpret_cast<const std::uint8_t*>(bytes.data()), size});
  send(out);
}

// The id of the next EXEC.
std::uint32_t next_exec() {
  static FrameReader reader(2 * kMaxFrame);
  for (;;) {
    Frame frame;
    if (reader.peek(frame) == FrameReader::Status::kFrame) {
      const auto header = frame.header;
      reader.pop();
      if (header.type == static_cast<std::uint16_t>(Type::kExec)) return header.id;
      continue;
    }
    const auto room = reader.space();
    const ssize_t n = read(0, room.data(), room.size());
    if (n > 0) {
      reader.commit(static_cast<std::size_t>(n));
    } else if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
      wait_for(POLLIN);
    } else {
      _exit(0);
    }
  }
}

[[noreturn]] void stay() {
  for (;;) pause();
}

// Before any HELLO.
void greet_badly(const std::string& way) {
  if (way == "magic") say(0, Hello{.magic = 0x12345678});
  if (way == "version") say(0, Hello{.version = 77});
  if (way == "hello id") say(7, Hello{});
  if (way == "length") send_header(0xffffffff, 1, 0, 0);
  if (way == "flags") send_header(8, 1, 0xfffe, 0);
  if (way == "garbage") {
    std::string bytes(1 << 20, '\0');
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(rand());
    (void)!write(0, bytes.data(), bytes.size());
  }
  if (way == "no hello") say(1, Started{1});
  if (way == "drip") {
    // The first byte of a good HELLO, and no more.
    const std::uint8_t byte = 10;
    (void)!write(0, &byte, 1);
    stay();
  }
  if (way == "exit") _exit(3);
}

void answer_badly(const std::string& way, std::uint32_t id) {
  if (way == "foreign id") say(id + 1, Started{1});
  if (way == "huge id") say(0xffffffff, Exited{});
  if (way == "exited first") say(id, Exited{});
  say(id, Started{2});
  if (way == "started twice") say(id, Started{3});
  if (way == "unknown type") send_header(0, 4711, 0, id);
  if (way == "client type") say(id, Signal{9, true});
  if (way == "long frame") send_header(kMaxPayload + 1, 21, 0, id);
  if (way == "empty output") send_header(0, static_cast<std::uint16_t>(Type::kStdout), 0, id);
  if (way == "stat reply") say(id, StatReply{});
  if (way == "stream") say(id, OutputEof{static_cast<Stream>(9)});
  if (way == "hello twice") say(0, Hello{});
  if (way == "flood") {
    for (;;) say_bytes(id, Type::kStdout, kMaxPayload);
  }
  if (way == "small flood") {
    for (;;) say_bytes(id, Type::kStderr, 1);
  }
  if (way == "credit flood") {
    for (;;) say(id, Credit{Stream::kStdin, kWindow});
  }
  if (way == "pong flood") {
    for (std::uint64_t token = 0;; ++token) {
      ByteQueue out;
      put_pong(out, id, Ping{token});
      send(out);
    }
  }
  if (way == "done flood") {
    for (;;) say(id, Done{});
  }
  if (way == "more") {
    // A message of frames that never ends.
    for (;;) {
      send_header(kMaxPayload, static_cast<std::uint16_t>(Type::kStdout), kFlagMore, id);
      for (std::size_t sent = 0; sent < kMaxPayload; sent += 4096) {
        ByteQueue out;
        static const std::uint8_t page[4096] = {};
        out.append(page);
        send(out);
      }
    }
  }
  for (const Stream stream : {Stream::kStdout, Stream::kStderr}) say(id, OutputEof{stream});
  if (way == "after eof") say_bytes(id, Type::kStdout, 10);
  if (way == "signal 200") say(id, Exited{.signaled = true, .value = 200});
  say(id, Exited{});
  if (way == "exited twice") say(id, Exited{});
  if (way == "processes") {
    Done done;
    done.left_total = 3;
    done.left_running.assign(kMaxLeftRunning + 1, 1);
    say(id, done);
  }
  if (way == "half") {
    send_header(5000, static_cast<std::uint16_t>(Type::kDone), 0, id);
    stay();
  }
}

}  // namespace

int main() {
  char way[64] = "";
  const int fd = open("/leak/way", O_RDONLY | O_CLOEXEC);
  const ssize_t n = fd < 0 ? -1 : read(fd, way, sizeof way - 1);
  if (n <= 0) return 9;
  greet_badly(way);
  say(0, Hello{});
  for (;;) {
    const std::uint32_t id = next_exec();
    if (strcmp(way, "silent") == 0) stay();
    answer_badly(way, id);
  }
}
