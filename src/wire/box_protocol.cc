#include "wire/box_protocol.h"

#include <cstring>
#include <string>
#include <type_traits>

#include "wire/job_messages.h"

namespace temenos::box_wire {
namespace {

// Builds a payload. Small ones, so one string; the bodies of streams never come through here.
class Writer {
 public:
  template <typename T>
  Writer& number(T value) {
    static_assert(std::is_integral_v<T> && !std::is_same_v<T, bool>);
    std::uint8_t raw[sizeof(T)];
    std::memcpy(raw, &value, sizeof(T));
    text_.append(reinterpret_cast<const char*>(raw), sizeof(T));
    return *this;
  }
  Writer& text(std::string_view value) {
    number(static_cast<std::uint32_t>(value.size()));
    text_.append(value);
    return *this;
  }
  Writer& list(const std::vector<std::string_view>& items) {
    number(static_cast<std::uint32_t>(items.size()));
    for (const auto item : items) text(item);
    return *this;
  }
  Bytes bytes() const {
    return {reinterpret_cast<const std::uint8_t*>(text_.data()), text_.size()};
  }
  void send(ByteQueue& out, Type type, std::uint32_t id) const {
    append_message(out, static_cast<std::uint16_t>(type), id, bytes());
  }

 private:
  std::string text_;
};

// Reads a payload; after the first misfit everything fails.
class Reader {
 public:
  explicit Reader(Bytes bytes) : bytes_(bytes) {}
  template <typename T>
  T number() {
    static_assert(std::is_integral_v<T> && !std::is_same_v<T, bool>);
    T value = 0;
    if (bytes_.size() < sizeof(T)) {
      fail();
      return 0;
    }
    std::memcpy(&value, bytes_.data(), sizeof(T));
    bytes_ = bytes_.subspan(sizeof(T));
    return value;
  }
  bool flag() {
    const auto value = number<std::uint8_t>();
    require(value <= 1);
    return value == 1;
  }
  // No NUL: every string of the protocol ends up in a system call.
  std::string_view text(std::size_t least, std::size_t most) {
    const std::size_t size = number<std::uint32_t>();
    if (size < least || size > most || size > bytes_.size()) {
      fail();
      return {};
    }
    const std::string_view value(reinterpret_cast<const char*>(bytes_.data()), size);
    bytes_ = bytes_.subspan(size);
#ifndef TEMENOS_PLANT_INIT_REQUESTS
    require(value.find('\0') == std::string_view::npos);
#endif
    return value;
  }
  std::string_view path() {
    const auto value = text(1, kMaxPath);
    require(!value.empty() && value[0] == '/');
    return value;
  }
  void list(std::size_t least, std::vector<std::string_view>* items) {
    const std::size_t count = number<std::uint32_t>();
    require(count >= least && count <= kMaxArgs);
    for (std::size_t i = 0; i < count && good_; ++i) {
      const auto item = text(0, kMaxMessage);
      if (items != nullptr) items->push_back(item);
    }
  }
  std::uint32_t window() {
    const auto value = number<std::uint32_t>();
    require(value >= 1 && value <= kWindow);
    return value;
  }
  std::uint32_t job() {
    const auto value = number<std::uint32_t>();
    require(value >= 1 && value <= kMaxJob);
    return value;
  }
  Stream stream() {
    const auto value = number<std::uint8_t>();
    require(value <= 2);
    return static_cast<Stream>(value);
  }
  FileType file_type() {
    const auto value = number<std::uint8_t>();
    require(value <= static_cast<std::uint8_t>(FileType::kDevice));
    return static_cast<FileType>(value);
  }
  void require(bool condition) {
    if (!condition) fail();
  }
  bool good() const { return good_; }
  bool done() const { return good_ && bytes_.empty(); }
  Bytes rest() const { return bytes_; }

 private:
  void fail() {
    good_ = false;
    bytes_ = {};
  }
  Bytes bytes_;
  bool good_ = true;
};

void write_exec_head(Writer& writer, const Exec& exec) {
  writer.number(exec.flags).number(exec.timeout_ms).number(exec.output_cap).number(exec.window);
}
constexpr std::size_t kExecHead = 4 + 4 + 8 + 4;

bool read_exec(Bytes payload, Exec& exec, bool keep_lists) {
  if (payload.size() > kMaxMessage) return false;
  Reader in(payload);
  exec.flags = in.number<std::uint32_t>();
  in.require((exec.flags & ~(kExecStdin | kExecTty)) == 0);
  in.require((exec.flags & kExecTty) == 0 || (exec.flags & kExecStdin) != 0);
  exec.timeout_ms = in.number<std::uint32_t>();
  exec.output_cap = in.number<std::uint64_t>();
  exec.window = in.number<std::uint32_t>();
  in.require(exec.window <= kWindow);
  exec.cwd = in.path();
  exec.argv.clear();
  exec.env.clear();
  in.list(1, keep_lists ? &exec.argv : nullptr);
  in.list(0, keep_lists ? &exec.env : nullptr);
  exec.rows = in.number<std::uint16_t>();
  exec.cols = in.number<std::uint16_t>();
  in.require((exec.flags & kExecTty) != 0 || (exec.rows == 0 && exec.cols == 0));
  return in.done();
}

void write_ping(ByteQueue& out, Type type, std::uint32_t id, const Ping& ping) {
  Writer().number(ping.token).send(out, type, id);
}

}  // namespace

void put(ByteQueue& out, std::uint32_t id, Type type, Bytes payload) {
  append_message(out, static_cast<std::uint16_t>(type), id, payload);
}

void put(ByteQueue& out, std::uint32_t id, const Hello& m) {
  Writer().number(m.magic).number(m.version).number(m.features).send(out, Type::kHello, id);
}
bool decode(Bytes payload, Hello& m) {
  Reader in(payload);
  m.magic = in.number<std::uint32_t>();
  m.version = in.number<std::uint16_t>();
  m.features = in.number<std::uint32_t>();
  return in.done();
}

void put(ByteQueue& out, std::uint32_t id, const Ping& m) { write_ping(out, Type::kPing, id, m); }
void put_pong(ByteQueue& out, std::uint32_t id, const Ping& m) {
  write_ping(out, Type::kPong, id, m);
}
bool decode(Bytes payload, Ping& m) {
  Reader in(payload);
  m.token = in.number<std::uint64_t>();
  return in.done();
}

void put(ByteQueue& out, std::uint32_t id, const Exec& m) {
  Writer writer;
  write_exec_head(writer, m);
  writer.text(m.cwd).list(m.argv).list(m.env);
  writer.number(m.rows).number(m.cols).send(out, Type::kExec, id);
}
bool decode(Bytes payload, Exec& m) { return read_exec(payload, m, true); }
bool check_exec(Bytes payload, Exec& exec) { return read_exec(payload, exec, false); }
void put_exec_again(ByteQueue& out, std::uint32_t id, Bytes payload, std::uint32_t window) {
  Exec exec;
  Reader in(payload);
  exec.flags = in.number<std::uint32_t>();
  exec.timeout_ms = in.number<std::uint32_t>();
  exec.output_cap = in.number<std::uint64_t>();
  exec.window = window;
  Writer writer;
  write_exec_head(writer, exec);
  append_message(out, static_cast<std::uint16_t>(Type::kExec), id, writer.bytes(),
                 payload.subspan(kExecHead));
}

void put(ByteQueue& out, std::uint32_t id, const Started& m) {
  Writer().number(m.pid).send(out, Type::kStarted, id);
}
bool decode(Bytes payload, Started& m) {
  Reader in(payload);
  m.pid = in.number<std::uint32_t>();
  in.require(m.pid >= 1);
  return in.done();
}

void put(ByteQueue& out, std::uint32_t id, const OutputEof& m) {
  Writer().number(static_cast<std::uint8_t>(m.stream)).send(out, Type::kOutputEof, id);
}
bool decode(Bytes payload, OutputEof& m) {
  Reader in(payload);
  m.stream = in.stream();
  in.require(m.stream != Stream::kStdin);
  return in.done();
}

void put(ByteQueue& out, std::uint32_t id, const Credit& m) {
  Writer().number(static_cast<std::uint8_t>(m.stream)).number(m.bytes).send(out, Type::kCredit, id);
}
bool decode(Bytes payload, Credit& m) {
  Reader in(payload);
  m.stream = in.stream();
  m.bytes = in.window();
  return in.done();
}

void put(ByteQueue& out, std::uint32_t id, const Signal& m) {
  Writer().number(m.signal).number(static_cast<std::uint8_t>(m.tree)).send(out, Type::kSignal, id);
}
bool decode(Bytes payload, Signal& m) {
  Reader in(payload);
  m.signal = in.number<std::uint8_t>();
  in.require(m.signal >= 1 && m.signal <= 64);
  m.tree = in.flag();
  return in.done();
}

void put(ByteQueue& out, std::uint32_t id, const Exited& m) {
  Writer()
      .number(static_cast<std::uint8_t>(m.signaled))
      .number(m.value)
      .number(m.user_us)
      .number(m.system_us)
      .number(m.max_rss_kb)
      .send(out, Type::kExited, id);
}
bool decode(Bytes payload, Exited& m) {
  Reader in(payload);
  m.signaled = in.flag();
  m.value = in.number<std::uint8_t>();
  in.require(!m.signaled || (m.value >= 1 && m.value <= 64));
  m.user_us = in.number<std::uint64_t>();
  m.system_us = in.number<std::uint64_t>();
  m.max_rss_kb = in.number<std::uint64_t>();
  return in.done();
}

void put(ByteQueue& out, std::uint32_t id, const Done& m) {
  Writer writer;
  writer.number(m.flags).number(m.left_total);
  writer.number(static_cast<std::uint16_t>(m.left_running.size()));
  for (const auto pid : m.left_running) writer.number(pid);
  writer.send(out, Type::kDone, id);
}
bool decode(Bytes payload, Done& m) {
  Reader in(payload);
  m.flags = in.number<std::uint32_t>();
  in.require(m.flags <= 15);
  m.left_total = in.number<std::uint32_t>();
  const std::size_t count = in.number<std::uint16_t>();
  in.require(count <= kMaxLeftRunning && count <= m.left_total);
  m.left_running.clear();
  for (std::size_t i = 0; i < count && in.good(); ++i) {
    m.left_running.push_back(in.number<std::uint32_t>());
  }
  return in.done();
}

void put(ByteQueue& out, std::uint32_t id, const ErrorReply& m) {
  Writer().number(static_cast<std::uint8_t>(m.stage)).number(m.error).send(out, Type::kError, id);
}
bool decode(Bytes payload, ErrorReply& m) {
  Reader in(payload);
  const auto stage = in.number<std::uint8_t>();
  in.require(stage >= 1 && stage <= static_cast<std::uint8_t>(Stage::kProtocol));
  m.stage = static_cast<Stage>(stage);
  m.error = in.number<std::uint16_t>();
  in.require(m.error < 4096);  // MAX_ERRNO
  return in.done();
}

void put(ByteQueue& out, std::uint32_t id, const Read& m) {
  Writer().number(m.offset).number(m.length).number(m.window).text(m.path).send(out, Type::kRead,
                                                                                id);
}
bool decode(Bytes payload, Read& m) {
  Reader in(payload);
  m.offset = in.number<std::uint64_t>();
  in.require(m.offset <= static_cast<std::uint64_t>(INT64_MAX));
  m.length = in.number<std::uint64_t>();
  m.window = in.window();
  m.path = in.path();
  return in.done();
}

void put(ByteQueue& out, std::uint32_t id, const Write& m) {
  Writer()
      .number(static_cast<std::uint8_t>(m.how))
      .number(m.mode)
      .text(m.path)
      .send(out, Type::kWrite, id);
}
bool decode(Bytes payload, Write& m) {
  Reader in(payload);
  const auto how = in.number<std::uint8_t>();
  in.require(how <= static_cast<std::uint8_t>(Write::How::kAppend));
  m.how = static_cast<Write::How>(how);
  m.mode = in.number<std::uint32_t>();
  in.require(m.mode == kKeepMode || m.mode <= 07777);
  m.path = in.path();
  return in.done();
}

void put(ByteQueue& out, std::uint32_t id, const List& m) {
  Writer().number(m.window).text(m.path).send(out, Type::kList, id);
}
bool decode(Bytes payload, List& m) {
  Reader in(payload);
  m.window = in.window();
  m.path = in.path();
  return in.done();
}

void put(ByteQueue& out, std::uint32_t id, const Stat& m) {
  Writer().number(static_cast<std::uint8_t>(m.follow)).text(m.path).send(out, Type::kStat, id);
}
bool decode(Bytes payload, Stat& m) {
  Reader in(payload);
  m.follow = in.flag();
  m.path = in.path();
  return in.done();
}

void put(ByteQueue& out, std::uint32_t id, const Mkdir& m) {
  Writer()
      .number(static_cast<std::uint8_t>(m.parents))
      .number(m.mode)
      .text(m.path)
      .send(out, Type::kMkdir, id);
}
bool decode(Bytes payload, Mkdir& m) {
  Reader in(payload);
  m.parents = in.flag();
  m.mode = in.number<std::uint32_t>();
  in.require(m.mode <= 07777);
  m.path = in.path();
  return in.done();
}

void put(ByteQueue& out, std::uint32_t id, const Remove& m) {
  Writer().number(static_cast<std::uint8_t>(m.recursive)).text(m.path).send(out, Type::kRemove, id);
}
bool decode(Bytes payload, Remove& m) {
  Reader in(payload);
  m.recursive = in.flag();
  m.path = in.path();
  return in.done();
}

void put(ByteQueue& out, std::uint32_t id, const Resize& m) {
  Writer().number(m.rows).number(m.cols).send(out, Type::kResize, id);
}
bool decode(Bytes payload, Resize& m) {
  Reader in(payload);
  m.rows = in.number<std::uint16_t>();
  m.cols = in.number<std::uint16_t>();
  return in.done();
}

void put(ByteQueue& out, std::uint32_t id, const Dial& m) {
  Writer()
      .number(static_cast<std::uint8_t>(m.to))
      .number(m.port)
      .number(m.window)
      .text(m.path)
      .send(out, Type::kDial, id);
}
bool decode(Bytes payload, Dial& m) {
  Reader in(payload);
  const auto to = in.number<std::uint8_t>();
  m.to = static_cast<Dial::To>(to);
  m.port = in.number<std::uint16_t>();
  m.window = in.window();
  if (m.to == Dial::To::kTcp) {
    in.require(m.port != 0);
    m.path = in.text(0, 0);
  } else {
    in.require(m.to == Dial::To::kUnix && m.port == 0);
    m.path = in.path();
    in.require(m.path.size() <= kMaxSocketPath);
  }
  return in.done();
}

void put(ByteQueue& out, std::uint32_t id, const FileDone& m) {
  Writer().number(m.count).send(out, Type::kFileDone, id);
}
bool decode(Bytes payload, FileDone& m) {
  Reader in(payload);
  m.count = in.number<std::uint64_t>();
  return in.done();
}

void put(ByteQueue& out, std::uint32_t id, const StatReply& m) {
  Writer()
      .number(static_cast<std::uint8_t>(m.type))
      .number(m.mode)
      .number(m.uid)
      .number(m.gid)
      .number(m.size)
      .number(m.mtime_ns)
      .text(m.target)
      .send(out, Type::kStatReply, id);
}
bool decode(Bytes payload, StatReply& m) {
  Reader in(payload);
  m.type = in.file_type();
  m.mode = in.number<std::uint32_t>();
  in.require(m.mode <= 07777);
  m.uid = in.number<std::uint32_t>();
  m.gid = in.number<std::uint32_t>();
  m.size = in.number<std::uint64_t>();
  m.mtime_ns = in.number<std::int64_t>();
  m.target = in.text(0, kMaxPath);
  in.require(m.target.empty() || m.type == FileType::kSymlink);
  return in.done();
}

void put(ByteQueue& out, std::uint32_t id, const Detach& m) {
  Writer().number(m.job).send(out, Type::kDetach, id);
}
bool decode(Bytes payload, Detach& m) {
  Reader in(payload);
  m.job = in.job();
  return in.done();
}

void put(ByteQueue& out, std::uint32_t id, const JobWait& m) {
  Writer().number(m.job).number(m.timeout_ms).send(out, Type::kJobWait, id);
}
bool decode(Bytes payload, JobWait& m) {
  Reader in(payload);
  m.job = in.job();
  m.timeout_ms = in.number<std::uint32_t>();
  return in.done();
}

void put(ByteQueue& out, std::uint32_t id, const JobSignal& m) {
  Writer()
      .number(m.job)
      .number(m.signal)
      .number(static_cast<std::uint8_t>(m.tree))
      .send(out, Type::kJobSignal, id);
}
bool decode(Bytes payload, JobSignal& m) {
  Reader in(payload);
  m.job = in.job();
  m.signal = in.number<std::uint8_t>();
  in.require(m.signal <= 64);
  m.tree = in.flag();
  return in.done();
}

void put(ByteQueue& out, std::uint32_t id, const JobSegment& m) {
  Writer().number(m.offset).send(out, Type::kJobSegment, id);
}
bool decode(Bytes payload, JobSegment& m) {
  Reader in(payload);
  m.offset = in.number<std::uint64_t>();
  in.require(m.offset <= static_cast<std::uint64_t>(INT64_MAX));
  return in.done();
}

// Entry: u8 type, u32 mode, u64 size, i64 mtime, u16 name length, name.
std::size_t put_entry(std::span<std::uint8_t, kMaxEntry> out, const Entry& entry) {
  Writer writer;
  writer.number(static_cast<std::uint8_t>(entry.type)).number(entry.mode).number(entry.size);
  writer.number(entry.mtime_ns).number(static_cast<std::uint16_t>(entry.name.size()));
  const Bytes head = writer.bytes();
  std::memcpy(out.data(), head.data(), head.size());
  std::memcpy(out.data() + head.size(), entry.name.data(), entry.name.size());
  return head.size() + entry.name.size();
}
bool take_entry(Bytes& payload, Entry& entry) {
  Reader in(payload);
  entry.type = in.file_type();
  entry.mode = in.number<std::uint32_t>();
  in.require(entry.mode <= 07777);
  entry.size = in.number<std::uint64_t>();
  entry.mtime_ns = in.number<std::int64_t>();
  const std::size_t size = in.number<std::uint16_t>();
  if (!in.good() || size < 1 || size > kMaxName || size > in.rest().size()) return false;
  entry.name = {reinterpret_cast<const char*>(in.rest().data()), size};
  if (entry.name == "." || entry.name == ".." ||
      entry.name.find_first_of(std::string_view("/\0", 2)) != std::string_view::npos) {
    return false;
  }
  payload = in.rest().subspan(size);
  return true;
}

}  // namespace temenos::box_wire
