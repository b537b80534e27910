// Bytes from init into session's engine, while two execs, each file operation and two dials are
// alive.
// Whatever comes, memory stays within its bound, no stream gets more than a window, and a client
// sees only messages that decode and ids that are its own.
//
// Input: records of {type, which operation, length and kind, payload}; ids are filled in, since no
// fuzzer guesses them, unless the record is raw noise.
#include <cstdlib>

#include "session/engine_script.h"

namespace {

using namespace temenos;
using namespace temenos::session;
using namespace temenos::box_wire;

void require(bool condition) {
  if (!condition) abort();
}

constexpr std::uint32_t kOperations = 10;

// What each stream of each operation was granted and has sent, in whole frames.
struct Account {
  std::size_t granted[kOperations + 1][2] = {};
  std::size_t sent[kOperations + 1][2] = {};
};

void check_client(EngineScript& script, int slot, Account& account) {
  for (const auto& heard : script.client_heard(slot)) {
    require(heard.id <= kOperations);
    if (heard.type == Type::kStdout || heard.type == Type::kStderr) {
      const int stream = heard.type == Type::kStdout ? 0 : 1;
      account.sent[heard.id][stream] += kHeaderSize + heard.payload.size();
      require(account.sent[heard.id][stream] <= account.granted[heard.id][stream]);
    }
    Exited exited;
    Done done;
    ErrorReply error;
    StatReply stat;
    Credit credit;
    if (heard.type == Type::kExited) require(decode(heard.payload, exited));
    if (heard.type == Type::kDone) require(decode(heard.payload, done));
    if (heard.type == Type::kError) require(decode(heard.payload, error));
    if (heard.type == Type::kStatReply) require(decode(heard.payload, stat));
    if (heard.type == Type::kCredit) require(decode(heard.payload, credit));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  // Far beyond what the first grants allow, made once.
  static const std::vector<std::uint8_t> big(40'000, 'x');
  EngineScript script;
  script.ready();
  const int slot = script.client();
  const std::uint32_t ids[] = {
      script.exec(slot, 1, {.flags = kExecStdin}),
      script.exec(slot, 2, {.output_cap = 1'000}),
      (script.say(slot, 3, Read{0, 10, kWindow, "/a"}), script.init_heard().at(0).id),
      (script.say(slot, 4, Write{Write::How::kReplace, kKeepMode, "/a"}),
       script.init_heard().at(0).id),
      (script.say(slot, 5, List{kWindow, "/a"}), script.init_heard().at(0).id),
      (script.say(slot, 6, Stat{false, "/a"}), script.init_heard().at(0).id),
      (script.say(slot, 7, Ping{1}), script.init_heard().at(0).id),
      (script.say(slot, 8, Remove{true, "/a"}), script.init_heard().at(0).id),
      (script.say(slot, 9, Dial{Dial::To::kTcp, 80}), script.init_heard().at(0).id),
      (script.say(slot, 10, Dial{Dial::To::kTcp, 80}), script.init_heard().at(0).id),
  };
  static_assert(std::size(ids) == kOperations);
  script.init(ids[0], Started{4});
  script.init(ids[8], Type::kDialed);
  Account account;
  constexpr std::size_t kMostAtFirst = 64 * 1024;
  for (auto& of_op : account.granted) of_op[0] = of_op[1] = kMostAtFirst;
  while (size >= 4 && !script.engine.dead()) {
    const std::uint8_t type = data[0];
    const std::uint32_t id = ids[data[1] % kOperations];
    std::size_t length = data[2] | static_cast<std::size_t>(data[3] & 3) << 8;
    const bool noise = (data[3] & 0x80) != 0;
    const bool large = (data[3] & 0x40) != 0;
    data += 4;
    size -= 4;
    length = std::min(length, size);
    if (noise) {
      script.init_bytes({data, length});
    } else if (large) {
      script.init(id, static_cast<Type>(type), big);
    } else {
      script.init(id, static_cast<Type>(type), Bytes(data, length));
    }
    data += length;
    size -= length;
    for (const auto& heard : script.init_heard()) {
      if (heard.type != Type::kCredit) continue;
      const auto credit = heard.as<Credit>();
      const auto op = std::find(std::begin(ids), std::end(ids), heard.id) - std::begin(ids);
      require(op < kOperations && credit.stream != Stream::kStdin);
      account.granted[op + 1][credit.stream == Stream::kStdout ? 0 : 1] += credit.bytes;
    }
    require(script.engine.pool_used() <= 8u << 20);
    require(script.engine.client_out(slot).size() <= 2u << 20);
    check_client(script, slot, account);
  }
  if (script.engine.dead()) {
    require(script.engine.closing(slot));
    require(script.engine.live_operations() == 0);
  }
  check_client(script, slot, account);
  return 0;
}
