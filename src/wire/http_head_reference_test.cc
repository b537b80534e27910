// What is taken as a head is the same request to others: to Python's http.server, which takes
// nearly anything, and to Node's parser, which is what many servers run. Heads that we refuse are
// not compared: we refuse more than both.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "base/text.h"
#include "wire/http_head.h"

namespace temenos::wire {
namespace {

// Each reads a file with one head a line, in hex, and prints a line for each: "refused", or the
// method, the target, all Hosts, all lengths, all encodings.
constexpr std::string_view kPython = R"(
import io, sys
from http.server import BaseHTTPRequestHandler
class Request(BaseHTTPRequestHandler):
    def __init__(self, data):
        self.rfile = io.BytesIO(data)
        self.raw_requestline = self.rfile.readline(65537)
        self.refused = False
        self.refused = not self.parse_request() or self.refused
        # It makes one slash of several at the beginning; the path is none of our business.
        self.path = self.requestline.split()[1] if not self.refused else ''
    def send_error(self, *args): self.refused = True
    def handle_expect_100(self): return True
    def line(self):
        fields = [','.join(self.headers.get_all(n, [])).strip() or '-'
                  for n in ('host', 'content-length', 'transfer-encoding')]
        return '\t'.join([self.command, self.path] + fields).lower()
for line in open(sys.argv[1]):
    request = Request(bytes.fromhex(line.strip()))
    print('refused' if request.refused else request.line())
)";
constexpr std::string_view kNode = R"(
const fs = require('fs'), net = require('net'), http = require('http');
const heads = fs.readFileSync(process.argv[2], 'latin1').trim().split('\n');
const path = process.argv[2] + '.socket';
let done = null;  // of the head that is sent; each connection keeps its own
function say(request) {
  const all = (name) => {
    const found = [];
    for (let i = 0; i < request.rawHeaders.length; i += 2) {
      if (request.rawHeaders[i].toLowerCase() === name) found.push(request.rawHeaders[i + 1].trim());
    }
    return found.join(',') || '-';
  };
  request.socket.done([request.method, request.url, all('host'), all('content-length'), all('transfer-encoding')]
      .join('\t').toLowerCase());
}
const server = http.createServer({maxHeaderSize: 70000}, say);
for (const event of ['connect', 'upgrade', 'checkContinue', 'checkExpectation']) server.on(event, say);
server.on('connection', (socket) => { socket.done = done; });
server.on('clientError', (error, socket) => socket.done('refused'));
server.listen(path, async () => {
  for (const head of heads) {
    const socket = net.connect(path);
    socket.on('error', () => {});
    console.log(await new Promise((resolve) => { done = resolve; socket.end(Buffer.from(head, 'hex')); }));
    socket.destroy();
  }
  process.exit(0);
});
)";

struct Taken {
  std::string text;
  HttpHead head;
};

std::vector<Taken> make_heads() {
  const std::vector<std::string> lines = {"GET / HTTP/1.1",
                                          "POST /x?y=z HTTP/1.1",
                                          "GET http://a.example/x HTTP/1.1",
                                          "OPTIONS * HTTP/1.1",
                                          "PUT http://a.example HTTP/1.0",
                                          "GET / HTTP/1.0",
                                          "CONNECT a.example:443 HTTP/1.1"};
  const std::vector<std::string> fields = {"Host: a.example",
                                           "Host: a.example:80",
                                           "Host:\tA.example ",
                                           "Host : a.example",
                                           "Content-Length: 3",
                                           "Content-Length:4",
                                           "Content-Length: 03",
                                           "Transfer-Encoding: chunked",
                                           "transfer-encoding:\tChunked",
                                           "Transfer-Encoding : chunked",
                                           "Transfer-Encoding: x, chunked",
                                           "X-Y: z",
                                           "X: \xc3\xbc",
                                           "X:",
                                           " folded",
                                           "Connection: close",
                                           "Connection: keep-alive, x",
                                           "Expect: 100-continue",
                                           "Accept: */*",
                                           "Content_Length: 9",
                                           "Host\x0b: b.example",
                                           "GET / HTTP/1.1"};
  const std::vector<std::string> ends = {"\r\n", "\r\n", "\r\n", "\r\n",   "\r\n",
                                         "\r\n", "\n",   "\r",   "\r\r\n", "\r\n\r\n"};
  const std::string junk = " \t\r\n\v\f:,;\x7f\x85\xa0@/#%[]\\\"_-.0aZ";
  std::mt19937 random(20261130);
  std::vector<Taken> out;
  while (out.size() < 800) {
    std::string text = lines[random() % lines.size()] + "\r\n";
    if (random() % 4 != 0) text += "Host: a.example\r\n";
    for (auto n = random() % 4; n > 0; --n) {
      text += fields[random() % fields.size()] + ends[random() % ends.size()];
    }
    text += "\r\n";
    for (auto n = random() % 3; n > 0; --n) {
      const std::size_t at = random() % text.size();
      const char c = junk[random() % junk.size()];
      if (random() % 2 == 0) {
        text[at] = c;
      } else {
        text.insert(at, 1, c);
      }
    }
    HttpHeadReader reader;
    const Bytes bytes(reinterpret_cast<const std::uint8_t*>(text.data()), text.size());
    if (reader.feed(bytes) != Progress::kGood) continue;
    text.resize(reader.head().size);
    out.push_back({text, reader.head()});
  }
  return out;
}

class HttpHeadReference : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "/heads-XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override {
    for (const char* name : {"/heads", "/heads.socket", "/script"})
      unlink((folder_ + name).c_str());
    rmdir(folder_.c_str());
  }
  std::vector<std::string> read_by(const std::string& program, std::string_view script,
                                   const std::vector<Taken>& heads) {
    std::ofstream(folder_ + "/script") << script;
    {
      std::ofstream out(folder_ + "/heads");
      for (const Taken& taken : heads) out << hex_encode(taken.text) << "\n";
    }
    const std::string command = program + " " + folder_ + "/script " + folder_ + "/heads";
    FILE* const pipe = popen(command.c_str(), "re");
    std::string text;
    char buffer[4096];
    for (std::size_t n; (n = fread(buffer, 1, sizeof buffer, pipe)) > 0;) text.append(buffer, n);
    EXPECT_EQ(pclose(pipe), 0) << command;
    std::vector<std::string> lines = split(text, '\n');
    lines.pop_back();
    return lines;
  }

  // How many it refused.
  int compare(const std::string& program, std::string_view script) {
    const std::vector<Taken> heads = make_heads();
    const std::vector<std::string> lines = read_by(program, script, heads);
    EXPECT_EQ(lines.size(), heads.size());
    int refused = 0;
    for (std::size_t i = 0; i < std::min(heads.size(), lines.size()); ++i) {
      if (lines[i] == "refused") {
        ++refused;
        continue;
      }
      const HttpHead& head = heads[i].head;
      const std::vector<std::string> theirs = split(lines[i], '\t');
      if (theirs.size() != 5) {
        ADD_FAILURE() << escape(lines[i]);
        continue;
      }
      const bool has_length = head.body == HttpBody::kLength;
      EXPECT_EQ(theirs[0], lower_ascii(head.method));
      EXPECT_EQ(theirs[3], has_length ? std::to_string(head.content_length) : "-");
      EXPECT_EQ(theirs[4], head.body == HttpBody::kChunked ? "chunked" : "-");
      EXPECT_TRUE(theirs[2] == "-" || parse_authority(theirs[2])->host == head.host) << theirs[2];
      EXPECT_EQ(theirs[1], target_of(heads[i].text));
      if (HasFailure()) {
        ADD_FAILURE() << escape(heads[i].text) << "\n" << escape(lines[i]);
        break;
      }
    }
    return refused;
  }
  static std::string target_of(const std::string& text) {
    const std::size_t first = text.find(' ') + 1;
    return lower_ascii(text.substr(first, text.find(' ', first) - first));
  }

  std::string folder_;
};

TEST_F(HttpHeadReference, PythonReadsTheSame) { EXPECT_EQ(compare("python3 -B", kPython), 0); }

// It refuses methods that it does not know.
TEST_F(HttpHeadReference, NodeReadsTheSame) { EXPECT_LT(compare("node", kNode), 40); }

}  // namespace
}  // namespace temenos::wire
