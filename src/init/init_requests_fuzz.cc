// The decoders on init's side: frames, the assembly of EXEC, every request. What is accepted comes
// back the same when it is encoded and decoded again, and holds nothing that a system call would
// cut short.
#include <cstdlib>
#include <cstring>
#include <string>

#include "wire/box_protocol.h"

namespace {

using namespace temenos;
using namespace temenos::box_wire;

void require(bool condition) {
  if (!condition) abort();
}

std::vector<std::uint8_t> payload_of(ByteQueue& queue) {
  std::vector<std::uint8_t> wire;
  iovec part[1];
  while (queue.peek(part) == 1) {
    const auto* from = static_cast<const std::uint8_t*>(part[0].iov_base);
    wire.insert(wire.end(), from, from + part[0].iov_len);
    queue.consume(part[0].iov_len);
  }
  FrameReader reader(wire.size());
  std::memcpy(reader.space().data(), wire.data(), wire.size());
  reader.commit(wire.size());
  std::vector<std::uint8_t> payload;
  Frame frame;
  while (reader.peek(frame) == FrameReader::Status::kFrame) {
    payload.insert(payload.end(), frame.payload.begin(), frame.payload.end());
    reader.pop();
  }
  require(reader.buffered() == 0);
  return payload;
}

template <typename Message>
bool stable(Bytes payload, Message& message) {
  if (!decode(payload, message)) return false;
  ByteQueue queue;
  put(queue, 1, message);
  const auto again = payload_of(queue);
  require(again.size() == payload.size() &&
          std::memcmp(again.data(), payload.data(), again.size()) == 0);
  return true;
}

void check_path(std::string_view path) {
  require(!path.empty() && path.size() <= kMaxPath && path[0] == '/');
  require(path.find('\0') == std::string_view::npos);
}

void check(std::uint16_t type, Bytes payload) {
  Exec exec;
  Read read;
  Write write;
  List list;
  Stat stat;
  Mkdir mkdir;
  Remove remove;
  Resize resize;
  Dial dial;
  Signal signal;
  Credit credit;
  Ping ping;
  Hello hello;
  switch (static_cast<Type>(type)) {
    case Type::kExec:
      if (!stable(payload, exec)) break;
      check_path(exec.cwd);
      require(!exec.argv.empty() && exec.window <= kWindow);
      require((exec.flags & kExecTty) != 0 || (exec.rows == 0 && exec.cols == 0));
      require((exec.flags & kExecTty) == 0 || (exec.flags & kExecStdin) != 0);
      for (const auto text : exec.argv) require(text.find('\0') == std::string_view::npos);
      for (const auto text : exec.env) require(text.find('\0') == std::string_view::npos);
      break;
    case Type::kRead:
      if (stable(payload, read)) check_path(read.path);
      break;
    case Type::kWrite:
      if (stable(payload, write)) check_path(write.path);
      break;
    case Type::kList:
      if (stable(payload, list)) check_path(list.path);
      break;
    case Type::kStat:
      if (stable(payload, stat)) check_path(stat.path);
      break;
    case Type::kMkdir:
      if (!stable(payload, mkdir)) break;
      check_path(mkdir.path);
      require(mkdir.mode <= 07777);
      break;
    case Type::kRemove:
      if (stable(payload, remove)) check_path(remove.path);
      break;
    case Type::kResize:
      (void)stable(payload, resize);
      break;
    case Type::kDial:
      if (!stable(payload, dial)) break;
      require(dial.window >= 1 && dial.window <= kWindow);
      require((dial.to == Dial::To::kTcp) == (dial.port != 0));
      require((dial.to == Dial::To::kTcp) == dial.path.empty());
      if (!dial.path.empty()) check_path(dial.path);
      require(dial.path.size() <= kMaxSocketPath);
      break;
    case Type::kSignal:
      if (stable(payload, signal)) require(signal.signal >= 1 && signal.signal <= 64);
      break;
    case Type::kCredit:
      if (stable(payload, credit)) require(credit.bytes >= 1 && credit.bytes <= kWindow);
      break;
    case Type::kPing:
      (void)stable(payload, ping);
      break;
    case Type::kHello:
      (void)stable(payload, hello);
      break;
    default:
      break;
  }
}

}  // namespace

// Input: frames as they come over the socket.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  FrameReader reader(kMaxFrame);
  std::vector<std::uint8_t> assembly;
  while (size > 0) {
    const auto space = reader.space();
    require(!space.empty());
    const std::size_t count = std::min(space.size(), size);
    std::memcpy(space.data(), data, count);
    reader.commit(count);
    data += count;
    size -= count;
    Frame frame;
    for (;;) {
      const auto status = reader.peek(frame);
      if (status == FrameReader::Status::kBad) return 0;
      if (status == FrameReader::Status::kNeedMore) break;
      require(frame.payload.size() <= kMaxPayload);
      if ((frame.header.flags & kFlagMore) != 0 || !assembly.empty()) {
        assembly.insert(assembly.end(), frame.payload.begin(), frame.payload.end());
        if ((frame.header.flags & kFlagMore) == 0) {
          check(static_cast<std::uint16_t>(Type::kExec), assembly);
          assembly.clear();
        }
      } else {
        check(frame.header.type, frame.payload);
      }
      reader.pop();
    }
  }
  return 0;
}
