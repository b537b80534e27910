// A box's bytes against the gate, in pieces of any size, with dialer's answers and the server's
// bytes in between. Whatever comes: nothing goes to a server before dialer has connected and what
// had to be seen was seen; what goes there is what the client sent, but for rewritten heads; each
// HTTP/1 request that goes to a rule without a port names its host; a proxy with a password asks
// for nothing without it; and how the bytes were cut does not change what goes on.
//
// Input: a byte that chooses the entry and the rule, a byte of how to cut, then the client's bytes.
#include <cstdlib>

#include "front/gate_script.h"
#include "testing/tls_bytes.h"

namespace {

using namespace temenos::front;
using namespace temenos::egress;
namespace wire = temenos::wire;

void require(bool condition) {
  if (!condition) abort();
}

wire::Bytes bytes_of(std::string_view text) {
  return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

struct Plan {
  bool proxy;
  Verdict rule;
  bool refuses;
  bool upgrades;
  bool login;  // of a proxy on loopback
};
const Login kLogin("x", true);

Reply first_reply(const Plan& plan) {
  return make_reply(plan.refuses ? Verdict::kRefused : plan.rule, "a.test", Why::kNotAllowed);
}

struct Outcome {
  std::string to_server;
  bool open = false;
  bool over = false;
  Why why = Why::kNone;
};

Outcome play(const Plan& plan, std::string_view client, std::size_t piece) {
  const std::uint16_t port = plan.rule == Verdict::kNeedsTls ? 443 : 80;
  GateScript script{plan.proxy ? Gate(plan.login ? &kLogin : nullptr)
                               : Gate(target_v4({198, 18, 1, 7}, port))};
  // Who has not said the password asks for nothing.
  const bool may_ask = !plan.proxy || !plan.login ||
                       client.find("dGVtZW5vczp4") != client.npos ||  // temenos:x
                       client.find("temenos\1x") != client.npos;
  std::size_t answered = 0;
  bool server_spoke = false;
  auto answer = [&] {
    while (answered < script.asks.size()) {
      require(may_ask);
      // One question for the destination, then at most one for the connection.
      require(answered < 2);
      const bool first = script.asks[answered].ask == Ask::kDestination;
      require(first == (answered == 0));
      ++answered;
      script.reply(first ? first_reply(plan) : make_reply(Verdict::kConnected));
    }
    while (script.gate.wants_server() && !server_spoke) {
      server_spoke = true;
      if (script.to_server[0] == 22) {
        script.server(temenos::testing::tls_answer(plan.upgrades));
        continue;
      }
      script.server(plan.upgrades ? "HTTP/1.1 101 Switching\r\n\r\n" : "HTTP/1.1 200 OK\r\n\r\n");
    }
    if (!script.connected) require(script.to_server.empty());
    require(script.gate.memory() <= 3 * Gate::kMaxInput + 1024);
    require(script.early_server_bytes.empty());
  };
  answer();
  while (!client.empty() && !script.over()) {
    const std::size_t count = std::min(piece, client.size());
    script.client(client.substr(0, count));
    client.remove_prefix(count);
    answer();
  }
  Outcome out{script.to_server, script.open, script.over(), script.gate.why()};
  // Time and the end of the client end it, or leave an open connection.
  script.client_ends();
  answer();
  for (int i = 0; i < 4 && !script.over() && !script.open; ++i) script.time_out();
  require(out.to_server.size() <= script.to_server.size());
  return out;
}

// Behind the first hello of `bytes`, too, no hello of a server that asked for it names another.
void require_own_hellos(std::string_view bytes) {
  for (bool first = true;; first = false) {
    wire::TlsHelloReader reader;
    const auto status = reader.feed(bytes_of(bytes));
    if (status != wire::TlsHelloReader::Status::kHello) return require(!first);
    require(reader.hello().server_name && reader.hello().server_name->text == "a.test");
    if (!first) return;
    bytes.remove_prefix(reader.hello().size);
    bytes.remove_prefix(wire::tls_between_hellos(bytes_of(bytes)).size);
  }
}

// Every request in `bytes`, as a strict server reads them, names a.test.
void require_own_requests(std::string_view bytes) {
  while (!bytes.empty()) {
    wire::HttpHeadReader reader;
    if (reader.feed(bytes_of(bytes)) != wire::Progress::kGood) return abort();
    const wire::HttpHead& head = reader.head();
    require(head.host.text == "a.test");
    require(head.form != wire::HttpForm::kAuthority);
    bytes.remove_prefix(head.size);
    wire::HttpBodyReader body(head);
    while (!body.is_done() && !bytes.empty()) {
      const auto step = body.feed(bytes_of(bytes));
      if (step.progress == wire::Progress::kMalformed) return abort();
      bytes.remove_prefix(step.taken);
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  constexpr Verdict kRules[] = {Verdict::kAny, Verdict::kNeedsTls, Verdict::kNeedsHttp,
                                Verdict::kNeedsHttp};
  const Plan plan{.proxy = (data[0] & 4) != 0,
                  .rule = kRules[data[0] & 3],
                  .refuses = (data[0] & 0x18) == 0x18,
                  .upgrades = (data[0] & 0x20) != 0,
                  .login = (data[0] & 0x80) != 0};
  const std::size_t piece = data[1] % 64 + 1;
  std::string client(reinterpret_cast<const char*>(data + 2), size - 2);
  if ((data[0] & 0x40) != 0) client = temenos::testing::tls_hello("a.test") + client;

  const Outcome whole = play(plan, client, client.size() + 1);
  const Outcome cut = play(plan, client, piece);
  if (plan.refuses) require(whole.to_server.empty() && cut.to_server.empty());
  // What turns out to be malformed may have been passed on in part; nothing else differs.
  require(cut.to_server.starts_with(whole.to_server));
  require(whole.over || whole.to_server == cut.to_server);
  require(whole.over == cut.over);
  require(whole.open == cut.open);
  if (plan.rule == Verdict::kNeedsTls && !whole.to_server.empty()) {
    if (plan.upgrades) {
      require_own_hellos(cut.to_server);
    } else {
      wire::TlsHelloReader reader;
      require(reader.feed(bytes_of(whole.to_server)) == wire::TlsHelloReader::Status::kHello);
      require(reader.hello().server_name && reader.hello().server_name->text == "a.test");
    }
  }
  if (plan.rule == Verdict::kNeedsHttp && !whole.open && !plan.proxy) {
    require_own_requests(whole.to_server);
  }
  return 0;
}
