// Bytes from a client into session's engine, beside a client that behaves. Whatever comes: init is
// only asked what decodes, never gets more stdin than it allowed, the other client keeps its
// connection, and spools get what a reader of spools accepts.
#include <cstdlib>
#include <unordered_map>

#include "session/engine_script.h"

namespace {

using namespace temenos;
using namespace temenos::session;
using namespace temenos::box_wire;

void require(bool condition) {
  if (!condition) abort();
}

template <typename Message>
bool decodes(const Heard& heard) {
  Message message;
  return decode(heard.payload, message);
}

// What init heard must be something that init accepts.
void check_init(EngineScript& script, std::unordered_map<std::uint32_t, std::size_t>& stdin_sent) {
  for (const auto& heard : script.init_heard()) {
    require(heard.id != 0);
    switch (heard.type) {
      case Type::kExec:
        require(decodes<Exec>(heard));
        break;
      case Type::kRead:
        require(decodes<Read>(heard));
        break;
      case Type::kWrite:
        require(decodes<Write>(heard));
        break;
      case Type::kList:
        require(decodes<List>(heard));
        break;
      case Type::kStat:
        require(decodes<Stat>(heard));
        break;
      case Type::kMkdir:
        require(decodes<Mkdir>(heard));
        break;
      case Type::kRemove:
        require(decodes<Remove>(heard));
        break;
      case Type::kDial:
        require(decodes<Dial>(heard));
        break;
      case Type::kPing:
        require(decodes<Ping>(heard));
        break;
      case Type::kSignal:
        require(decodes<Signal>(heard));
        break;
      case Type::kResize:
        require(decodes<Resize>(heard));
        break;
      case Type::kCredit:
        require(decodes<Credit>(heard));
        break;
      case Type::kStdin:
        require(!heard.payload.empty());
        require((stdin_sent[heard.id] += kHeaderSize + heard.payload.size()) <= kWindow);
        break;
      case Type::kStdinEof:
      case Type::kKill:
        require(heard.payload.empty());
        break;
      default:
        abort();
    }
  }
}

// Job `number` is always there to be claimed, again after each end.
void check_job(EngineScript& script, int& job, std::uint32_t number) {
  for (const auto& heard : script.client_heard(job)) {
    require(heard.id == kJobFrameId);
    switch (heard.type) {
      case Type::kStarted:
        require(decodes<Started>(heard));
        break;
      case Type::kExited:
        require(decodes<Exited>(heard));
        break;
      case Type::kDone:
        require(decodes<Done>(heard));
        break;
      case Type::kError:
        require(decodes<ErrorReply>(heard));
        break;
      default:
        abort();  // init sends no output here
    }
  }
  if (!script.engine.closing(job)) return;
  script.spooled(job);
  if (!script.engine.dead()) job = script.job(number);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const std::vector<std::uint8_t> big(kMaxPayload, 'x');
  EngineScript script;
  script.ready();
  const int good = script.client();
  script.exec(good, 1);
  const int slot = script.client();
  std::unordered_map<std::uint32_t, std::size_t> stdin_sent;
  script.say(slot, 1, Exec{kExecStdin, 50, 10, kWindow, "/", {"x"}, {"A=B"}});
  check_init(script, stdin_sent);
  int jobs[] = {script.job(1), script.job(2)};
  // Records of {type, id, length and kind, payload}, or raw noise.
  while (size >= 4 && !script.engine.closing(slot)) {
    const auto type = static_cast<Type>(data[0]);
    const std::uint32_t id = data[1] % 8;
    const std::size_t length = std::min<std::size_t>(data[2] | (data[3] & 3u) << 8, size - 4);
    const std::uint8_t kind = data[3];
    const Bytes payload(data + 4, length);
    if ((kind & 0x80) != 0) {
      script.client_bytes(slot, payload);
    } else if ((kind & 0x40) != 0) {
      script.say(slot, id, type, big);
    } else if ((kind & 0x20) != 0) {
      script.at(script.now + length);
    } else {
      script.say(slot, id, type, payload);
    }
    data += 4 + length;
    size -= 4 + length;
    check_init(script, stdin_sent);
    if (script.engine.dead()) return 0;  // a kill that nobody answered: the clock did that
    require(!script.engine.closing(good));
    script.client_heard(slot);
    for (const std::uint32_t number : {1u, 2u}) check_job(script, jobs[number - 1], number);
  }
  script.engine.remove_client(slot, script.now);
  check_init(script, stdin_sent);
  require(script.engine.live_operations() >= 1);
  return 0;
}
