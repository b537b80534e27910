#include "wire/http_head.h"

#include <gtest/gtest.h>

#include <string>

#include "wire/http_text.h"

namespace temenos::wire {
namespace {

using namespace std::string_literals;

Bytes bytes(std::string_view text) {
  return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

std::string line_of(const HttpHead& head) {
  static constexpr std::string_view kForms[] = {"origin", "absolute", "authority", "asterisk"};
  std::string out = head.method + " " + std::string(kForms[static_cast<int>(head.form)]) + " " +
                    format_authority(head.host, head.port);
  if (head.minor == 0) out += " 1.0";
  if (head.body == HttpBody::kLength) out += " length " + std::to_string(head.content_length);
  if (head.body == HttpBody::kChunked) out += " chunked";
  if (head.upgrade) out += " upgrade";
  if (head.upgrade_other) out += " other";
  if (head.expect_continue) out += " expect";
  if (!head.keep_alive) out += " close";
  return out;
}

// All at once; and byte by byte the same must come out, at the same byte.
std::string read(const std::string& text) {
  HttpHeadReader at_once;
  const Progress progress = at_once.feed(bytes(text));
  HttpHeadReader slow;
  Progress slow_progress = Progress::kNeedMore;
  for (std::size_t n = 0; n <= text.size() && slow_progress == Progress::kNeedMore; ++n) {
    slow_progress = slow.feed(bytes(text).first(n));
    if (slow_progress == Progress::kGood) EXPECT_EQ(n, slow.head().size);
  }
  EXPECT_EQ(slow_progress, progress) << text;
  EXPECT_EQ(slow.reason(), at_once.reason()) << text;
  if (progress == Progress::kNeedMore) return "more";
  if (progress == Progress::kMalformed) return std::string(at_once.reason());
  EXPECT_EQ(line_of(slow.head()), line_of(at_once.head()));
  return line_of(at_once.head());
}

HttpHead head_of(const std::string& text) {
  HttpHeadReader reader;
  EXPECT_EQ(reader.feed(bytes(text)), Progress::kGood) << reader.reason() << "\n" << text;
  return reader.head();
}

// The line, a Host that goes with it, and more fields.
std::string get(const std::string& fields) {
  return read("GET / HTTP/1.1\r\nHost: a.example\r\n" + fields + "\r\n");
}

TEST(HttpHead, IsReadInEveryForm) {
  EXPECT_EQ(read("GET /x?y HTTP/1.1\r\nHost: A.Example\r\n\r\n"), "GET origin a.example");
  EXPECT_EQ(read("GET /x HTTP/1.1\r\nHOST:a.example:8080\t \r\nX:\r\n\r\nmore"),
            "GET origin a.example:8080");
  EXPECT_EQ(read("GET / HTTP/1.1\r\nHost: [2001:DB8::1]:80\r\n\r\n"),
            "GET origin [2001:db8::1]:80");
  EXPECT_EQ(read("GET / HTTP/1.0\r\nHost: a.example\r\n\r\n"), "GET origin a.example 1.0 close");
  EXPECT_EQ(read("M-SEARCH / HTTP/1.1\r\nHost: a.example\r\n\r\n"), "M-SEARCH origin a.example");
  EXPECT_EQ(read("OPTIONS * HTTP/1.1\r\nHost: a.example\r\n\r\n"), "OPTIONS asterisk a.example");
  EXPECT_EQ(read("GET http://a.example/x HTTP/1.1\r\nHost: a.example\r\n\r\n"),
            "GET absolute a.example");
  EXPECT_EQ(read("GET HTTP://A.example HTTP/1.1\r\nHost: a.example:80\r\n\r\n"),
            "GET absolute a.example");
  EXPECT_EQ(read("GET http://a.example:81?q HTTP/1.0\r\n\r\n"),
            "GET absolute a.example:81 1.0 close");
  EXPECT_EQ(read("CONNECT a.example:443 HTTP/1.1\r\nHost: a.example:443\r\n\r\n"),
            "CONNECT authority a.example:443");
  EXPECT_EQ(read("CONNECT a.example:443 HTTP/1.1\r\nHost: a.example\r\n\r\n"),
            "CONNECT authority a.example:443");
  EXPECT_EQ(read("CONNECT [::1]:22 HTTP/1.0\r\n\r\n"), "CONNECT authority [::1]:22 1.0 close");
  EXPECT_EQ(read("CONNECT a.example:443 HTTP/1.1\r\nHost: a.example\r\nContent-Length: 0\r\n\r\n"),
            "CONNECT authority a.example:443 length 0");
}

TEST(HttpHead, SaysWhatFollows) {
  EXPECT_EQ(get("Content-Length: 0\r\n"), "GET origin a.example length 0");
  EXPECT_EQ(get("content-length:\t12 \r\n"), "GET origin a.example length 12");
  EXPECT_EQ(get("Content-Length: 9223372036854775807\r\n"),
            "GET origin a.example length 9223372036854775807");
  EXPECT_EQ(get("Transfer-Encoding: Chunked\r\n"), "GET origin a.example chunked");
  EXPECT_EQ(get("Expect: 100-Continue\r\nContent-Length: 1\r\n"),
            "GET origin a.example length 1 expect");
  EXPECT_EQ(get("Connection: close\r\n"), "GET origin a.example close");
  EXPECT_EQ(get("Connection: x, ,Close,\r\nConnection: keep-alive\r\n"),
            "GET origin a.example close");
  EXPECT_EQ(read("GET / HTTP/1.0\r\nHost: a.example\r\nConnection: Keep-Alive\r\n\r\n"),
            "GET origin a.example 1.0");
  EXPECT_EQ(get("Connection: Upgrade\r\nUpgrade: websocket\r\n"), "GET origin a.example upgrade");
  EXPECT_EQ(get("Upgrade: websocket\r\n"), "GET origin a.example upgrade");
  EXPECT_EQ(get("Connection: upgrade\r\n"), "GET origin a.example upgrade");
  EXPECT_EQ(get("Upgrade: websocket, H2C\r\n"), "GET origin a.example upgrade other");
  EXPECT_EQ(get("Upgrade: HTTP/2.0\r\n"), "GET origin a.example upgrade other");
}

TEST(HttpHead, HasStrictLines) {
  EXPECT_EQ(read("\r\nGET / HTTP/1.1\r\n"), "an empty line before the request");
  EXPECT_EQ(read("\nGET / HTTP/1.1\r\n"), "a line feed without a carriage return");
  EXPECT_EQ(read("GET / HTTP/1.1\nHost: a\n\n"), "a line feed without a carriage return");
  EXPECT_EQ(get("X: y\nZ: z\r\n"), "a line feed without a carriage return");
  EXPECT_EQ(get("X: y\rZ: z\r\n"), "a carriage return without a line feed");
  EXPECT_EQ(get("X: y\r\r\n"), "a carriage return without a line feed");
  EXPECT_EQ(get("X: a\0b\r\n"s), "a control byte");
  EXPECT_EQ(get("X: a\x0b"
                "b\r\n"),
            "a control byte");
  EXPECT_EQ(get("X: a\x7f\r\n"), "a control byte");
  EXPECT_EQ(get("X: \xc3\xbc\tb\r\n"), "GET origin a.example");
  EXPECT_EQ(read("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), "HTTP/2 without TLS");
  EXPECT_EQ(get("X: y\r\n folded\r\n"), "a line that begins with a blank");
  EXPECT_EQ(get("X: y\r\n\tfolded\r\n"), "a line that begins with a blank");
  EXPECT_EQ(get("X : y\r\n"), "a field whose name is no token");
  EXPECT_EQ(get(": y\r\n"), "a field whose name is no token");
  EXPECT_EQ(get("X\xc3\xbc: y\r\n"), "a field whose name is no token");
  EXPECT_EQ(get("X(: y\r\n"), "a field whose name is no token");
  EXPECT_EQ(get("X\r\n"), "a field without a colon");
}

TEST(HttpHead, HasAStrictRequestLine) {
  const auto line = [](const std::string& text) {
    return read(text + "\r\nHost: a.example\r\n\r\n");
  };
  const std::string_view parts = "a request line without three parts";
  const std::string_view version = "no version HTTP/1.1 or 1.0";
  const std::string_view method = "a method that is no token";
  const std::string_view target = "a target with bytes that it must write as %XX";
  const std::string_view form = "a target that is neither /path nor http://host";
  EXPECT_EQ(line("GET /"), parts);
  EXPECT_EQ(line("GET"), parts);
  EXPECT_EQ(line("GET\t/\tHTTP/1.1"), parts);
  EXPECT_EQ(line("GET / HTTP/1.2"), version);
  EXPECT_EQ(line("GET / HTTP/1.10"), version);
  EXPECT_EQ(line("GET / HTTP/0.9"), version);
  EXPECT_EQ(line("GET / HTTP/2"), version);
  EXPECT_EQ(line("GET / http/1.1"), version);
  EXPECT_EQ(line("GET / HTTP/1.1 "), version);
  EXPECT_EQ(line(" / HTTP/1.1"), method);
  EXPECT_EQ(line("G(T / HTTP/1.1"), method);
  EXPECT_EQ(line("G\tT / HTTP/1.1"), method);
  EXPECT_EQ(line(std::string(33, 'G') + " / HTTP/1.1"), method);
  EXPECT_EQ(line("GET  / HTTP/1.1"), target);
  EXPECT_EQ(line("GET /  HTTP/1.1"), target);
  EXPECT_EQ(line("GET /a b HTTP/1.1"), target);
  EXPECT_EQ(line("GET /a\tb HTTP/1.1"), target);
  EXPECT_EQ(line("GET /\xc3\xbc HTTP/1.1"), target);
  EXPECT_EQ(line("GET /\xa0 HTTP/1.1"), target);
  EXPECT_EQ(line("GET /#a HTTP/1.1"), target);
  EXPECT_EQ(line("GET x HTTP/1.1"), form);
  EXPECT_EQ(line("GET a.example:80 HTTP/1.1"), form);
  EXPECT_EQ(line("GET https://a.example/ HTTP/1.1"), form);
  EXPECT_EQ(line("GET http:/a.example/ HTTP/1.1"), form);
  EXPECT_EQ(line("GET * HTTP/1.1"), "a target * of another method than OPTIONS");
}

TEST(HttpHead, NamesOneHost) {
  EXPECT_EQ(read("GET / HTTP/1.1\r\n\r\n"), "no Host");
  EXPECT_EQ(read("GET / HTTP/1.0\r\n\r\n"), "no Host");
  EXPECT_EQ(read("GET http://a.example/ HTTP/1.1\r\n\r\n"), "no Host");
  EXPECT_EQ(read("CONNECT a.example:443 HTTP/1.1\r\n\r\n"), "no Host");
  EXPECT_EQ(get("Host: a.example\r\n"), "more than one Host");
  EXPECT_EQ(get("hOST: b.example\r\n"), "more than one Host");
  for (const std::string& host :
       {""s, "a.example."s,
        "b\xc3\xbc"
        "cher.example"s,
        "a b"s, "a.example, b.example"s, "a.example:"s, "a.example:0"s, "u@a.example"s, "1.2.3"s,
        "0x7f000001"s, "::1"s, "[::1"s, "a.example/"s, "a_b.example:65536"s}) {
    EXPECT_EQ(read("GET / HTTP/1.1\r\nHost: " + host + "\r\n\r\n"),
              "a Host that is not in its canonical form")
        << host;
  }
  const auto absolute = [](const std::string& target) {
    return read("GET " + target + " HTTP/1.1\r\nHost: a.example\r\n\r\n");
  };
  EXPECT_EQ(absolute("http://u@a.example/"), "a user in the target");
  EXPECT_EQ(absolute("http://u:p@a.example"), "a user in the target");
  EXPECT_EQ(absolute("http://a.example/@x"), "GET absolute a.example");
  EXPECT_EQ(absolute("http:///"), "a target whose host is not in its canonical form");
  EXPECT_EQ(absolute("http://"), "a target whose host is not in its canonical form");
  EXPECT_EQ(absolute("http://a.example\\@b.example/"), "a user in the target");
  EXPECT_EQ(absolute("http://a.example\\b/"), "a target whose host is not in its canonical form");
  EXPECT_EQ(absolute("http://b.example/"), "a Host that is not the target's");
  EXPECT_EQ(absolute("http://a.example:81/"), "a Host that is not the target's");
  const auto connect = [](const std::string& target, const std::string& host) {
    return read("CONNECT " + target + " HTTP/1.1\r\nHost: " + host + "\r\n\r\n");
  };
  const std::string_view no_target = "CONNECT to something that is not host:port";
  EXPECT_EQ(connect("a.example", "a.example"), no_target);
  EXPECT_EQ(connect("a.example.:443", "a.example"), no_target);
  EXPECT_EQ(connect("http://a.example:443", "a.example"), no_target);
  EXPECT_EQ(connect("/", "a.example"), no_target);
  EXPECT_EQ(connect("a.example:443", "b.example:443"), "a Host that is not the target's");
  EXPECT_EQ(connect("a.example:443", "a.example:80"), "a Host that is not the target's");
}

TEST(HttpHead, HasOneEnd) {
  const std::string_view number = "a Content-Length that is not one number";
  for (const std::string_view value : {"", "-1", "+1", "1 1", "1,1", "1, 1", "0x1", "1a", "01",
                                       "1.0", "9223372036854775808", "18446744073709551617"}) {
    EXPECT_EQ(get("Content-Length: " + std::string(value) + "\r\n"), number) << value;
  }
  EXPECT_EQ(get("Content-Length: 1\r\nContent-Length: 1\r\n"), "more than one Content-Length");
  EXPECT_EQ(get("Content-Length: 1\r\nTransfer-Encoding: chunked\r\n"),
            "both Content-Length and Transfer-Encoding");
  EXPECT_EQ(get("Transfer-Encoding: chunked\r\nContent-Length: 0\r\n"),
            "both Content-Length and Transfer-Encoding");
  EXPECT_EQ(get("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"),
            "more than one Transfer-Encoding");
  for (const std::string_view value : {"", "identity", "gzip, chunked", "chunked, chunked",
                                       "chunked;x", "xchunked", "\"chunked\"", "chunked,"}) {
    EXPECT_EQ(get("Transfer-Encoding: " + std::string(value) + "\r\n"),
              "a Transfer-Encoding but chunked")
        << value;
  }
  EXPECT_EQ(read("GET / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"),
            "Transfer-Encoding in HTTP/1.0");
  EXPECT_EQ(get("Content_Length: 5\r\n"), "a length in a field that is not named for it");
  EXPECT_EQ(get("transfer_encoding: chunked\r\n"), "a length in a field that is not named for it");
  EXPECT_EQ(get("Connection: Host\r\n"), "Connection lists a field that is not of the connection");
  EXPECT_EQ(get("Connection: close, content-length\r\nContent-Length: 5\r\n"),
            "Connection lists a field that is not of the connection");
  EXPECT_EQ(get("Connection: a b\r\n"), "a word in Connection that is no token");
  EXPECT_EQ(read("CONNECT a:1 HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n"),
            "CONNECT with a body");
  EXPECT_EQ(read("CONNECT a:1 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"),
            "CONNECT with a body");
}

TEST(HttpHead, IsBounded) {
  const std::string start = "GET / HTTP/1.1\r\nHost: a.example\r\nX: ";
  const std::string longest = start + std::string(kMaxHttpHead - start.size() - 4, 'x');
  EXPECT_EQ(read(longest + "\r\n\r\n"), "GET origin a.example");
  EXPECT_EQ(read(longest + "x\r\n\r\n"), "a head of more than 64 KB");
  EXPECT_EQ(read(std::string(kMaxHttpHead, 'G')), "a head of more than 64 KB");
  EXPECT_EQ(read(std::string(kMaxHttpHead - 1, 'G')), "more");
  std::string fields;
  for (std::size_t i = 1; i < kMaxHttpFields; ++i) fields += "X: y\r\n";
  EXPECT_EQ(get(fields), "GET origin a.example");
  EXPECT_EQ(get(fields + "X: y\r\n"), "more than 200 fields");
}

// The first prefix of `text` that is decided, and how.
std::string start_of(const std::string& text) {
  for (std::size_t n = 0; n <= text.size(); ++n) {
    const Start start = http_start(bytes(text).first(n));
    if (start == Start::kMaybe) continue;
    EXPECT_EQ(http_start(bytes(text)), start) << text;
    return (start == Start::kYes ? "yes " : "no ") + text.substr(0, n);
  }
  return "maybe";
}

TEST(HttpStart, IsDecidedEarly) {
  EXPECT_EQ(start_of("GET / HTTP/1.1\r\n"), "yes GET / HTTP/1.");
  EXPECT_EQ(start_of("GET http://a.example/ HTTP/1.0"), "yes GET http://a.example/ HTTP/1.");
  EXPECT_EQ(start_of("CONNECT a:1 HTTP/1.1"), "yes CONNECT a:1 HTTP/1.");
  EXPECT_EQ(start_of("OPTIONS * HTTP/1.1"), "yes OPTIONS * HTTP/1.");
  EXPECT_EQ(start_of(""), "maybe");
  EXPECT_EQ(start_of("GET"), "maybe");
  EXPECT_EQ(start_of("GET /"), "maybe");
  EXPECT_EQ(start_of("GET / HTTP"), "maybe");
  EXPECT_EQ(http_start(bytes("GET /" + std::string(kMaxHttpHead, 'x'))), Start::kYes);
  EXPECT_EQ(start_of(std::string(100, 'G')), "no " + std::string(33, 'G'));
}

TEST(HttpStart, DoesNotHoldBackOthers) {
  EXPECT_EQ(start_of("\x16\x03\x01"), "no \x16");
  EXPECT_EQ(start_of("\0\0\0\x08\x04\xd2\x16\x2f"s), "no \0"s);  // PostgreSQL
  EXPECT_EQ(start_of("*1\r\n$4\r\nPING\r\n"), "no *1\r");        // Redis
  EXPECT_EQ(start_of("PING\r\n"), "no PING\r");
  EXPECT_EQ(start_of("SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n"), "no SSH-2.0-OpenSSH_9.2p1 D");
  EXPECT_EQ(start_of("SSH-2.0-Go\r\n"), "no SSH-2.0-Go\r");
  EXPECT_EQ(start_of("0032git-upload-pack /p.git\0host=a\0"s), "no 0032git-upload-pack /p.git\0"s);
  EXPECT_EQ(start_of("EHLO a.example\r\n"), "no EHLO a");
  EXPECT_EQ(start_of("HELO host\r\n"), "no HELO ho");
  EXPECT_EQ(start_of("a1 LOGIN x y\r\n"), "no a1 L");
  EXPECT_EQ(start_of("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), "no PRI * HTTP/2");
  EXPECT_EQ(start_of("OPTIONS * RTSP/1.0\r\n"), "no OPTIONS * R");
  EXPECT_EQ(start_of("GET /key\r\n"), "no GET /key\r");
  EXPECT_EQ(start_of("GET  / HTTP/1.1\r\n"), "no GET  ");
  EXPECT_EQ(start_of("\r\nGET / HTTP/1.1"), "no \r");
}

std::string rewritten(const std::string& text) {
  const HttpHead head = head_of(text);
  const std::string out = rewrite_for_origin(bytes(text), head);
  const HttpHead again = head_of(out);
  EXPECT_EQ(again.size, out.size());
  EXPECT_EQ(again.host, head.host);
  EXPECT_EQ(again.port, head.port);
  EXPECT_EQ(again.body, head.body);
  EXPECT_EQ(again.content_length, head.content_length);
  EXPECT_FALSE(again.keep_alive);
  EXPECT_FALSE(again.upgrade);
  return out;
}

TEST(HttpRewrite, IsWhatAnOriginExpects) {
  EXPECT_EQ(rewritten("POST http://A.example/x?y HTTP/1.1\r\n"
                      "Accept: b\r\n"
                      "HOST: A.example\r\n"
                      "Connection: keep-alive, X-Mine\r\n"
                      "Proxy-Connection: keep-alive\r\n"
                      "Proxy-Authorization: Basic c2VjcmV0\r\n"
                      "Keep-Alive: timeout=5\r\n"
                      "x-mine: 1\r\n"
                      "TE: trailers\r\n"
                      "Upgrade: h2c\r\n"
                      "HTTP2-Settings: AAA\r\n"
                      "Content-Length: 3\r\n"
                      "X-Yours:  2 \r\n\r\nabc"),
            "POST /x?y HTTP/1.1\r\n"
            "Host: a.example\r\n"
            "Accept: b\r\n"
            "Content-Length: 3\r\n"
            "X-Yours:  2 \r\n"
            "Connection: close\r\n\r\n");
  EXPECT_EQ(rewritten("GET http://a.example:81 HTTP/1.0\r\n\r\n"),
            "GET / HTTP/1.0\r\nHost: a.example:81\r\nConnection: close\r\n\r\n");
  EXPECT_EQ(rewritten("GET http://a.example?q=/ HTTP/1.1\r\nHost: a.example\r\n\r\n"),
            "GET /?q=/ HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n");
  EXPECT_EQ(rewritten("OPTIONS http://a.example HTTP/1.1\r\nHost: a.example\r\n\r\n"),
            "OPTIONS * HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n");
  EXPECT_EQ(rewritten("PUT http://[2001:DB8::1]/ HTTP/1.1\r\nHost: [2001:db8::1]\r\n"
                      "Transfer-Encoding: chunked\r\n\r\n"),
            "PUT / HTTP/1.1\r\nHost: [2001:db8::1]\r\nTransfer-Encoding: chunked\r\n"
            "Connection: close\r\n\r\n");
}

TEST(HttpStart, TheSameWhereverItGoesOn) {
  for (const std::string text :
       {"GET / HTTP/1.1\r\n", "GET /x HTTP/2", "G /\x01",
        "GET /long/enough/to/be/more HTTP/1.0\r\n", "GET / HTTX", "OPTIONS * HTTP/1.1",
        "CONNECT a:1 HTTP/1.", "GET  /", "SSH-2.0-x y", "GET /a b HTTP/1.1",
        "GET http://a/ HTTP/1.1", "GET /aaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n"}) {
    for (std::size_t seen = 0; seen <= text.size(); ++seen) {
      if (http_start(bytes(text.substr(0, seen))) != Start::kMaybe) break;
      for (std::size_t size = seen; size <= text.size(); ++size) {
        const std::string part = text.substr(0, size);
        EXPECT_EQ(http_start(bytes(part), seen), http_start(bytes(part))) << part << " " << seen;
      }
    }
  }
}

TEST(HttpHead, HasTheCredentialsForAProxyOnce) {
  const auto credentials = [](const std::string& fields) {
    return head_of("CONNECT a.example:1 HTTP/1.1\r\nHost: a.example:1\r\n" + fields + "\r\n")
        .credentials;
  };
  EXPECT_EQ(credentials(""), "");
  EXPECT_EQ(credentials("Authorization: Basic x\r\n"), "");
  EXPECT_EQ(credentials("pRoxy-Authorization:  Basic x \r\n"), "Basic x");
  EXPECT_EQ(credentials("Proxy-Authorization: x\r\nProxy-Authorization: x\r\n"), "");
  EXPECT_EQ(credentials("Proxy-Authorization: \r\nProxy-Authorization: x\r\n"), "");
  const std::string longest(kMaxCredentials, 'x');
  EXPECT_EQ(credentials("Proxy-Authorization: " + longest + "\r\n"), longest);
  EXPECT_EQ(credentials("Proxy-Authorization: " + longest + "x\r\n"), "");
}

TEST(HttpRewrite, WithoutUpgrade) {
  const std::string text =
      "GET /x HTTP/1.1\r\nConnection: Upgrade, HTTP2-Settings\r\nHost: a.example\r\n"
      "HTTP2-Settings: AAA\r\nUpgrade: h2c\r\nConnection: x , upgrade,close\r\nA: b\r\n\r\n";
  const std::string out = without_upgrade(bytes(text), head_of(text));
  EXPECT_EQ(out, "GET /x HTTP/1.1\r\nHost: a.example\r\nConnection: x, close\r\nA: b\r\n\r\n");
  EXPECT_FALSE(head_of(out).upgrade);
}

TEST(HttpStatusLine, HasACode) {
  const auto status = [](const std::string& text) {
    for (std::size_t n = 0;; ++n) {
      const HttpStatus status = read_http_status(bytes(text).first(n));
      if (status.progress == Progress::kMalformed) return "bad " + std::to_string(n);
      if (status.progress == Progress::kGood) return std::to_string(status.code);
      if (n == text.size()) return "more"s;
    }
  };
  EXPECT_EQ(status("HTTP/1.1 101 Switching Protocols\r\n"), "101");
  EXPECT_EQ(status("HTTP/1.1 200\r\n"), "200");
  EXPECT_EQ(status("HTTP/1.1 101"), "more");
  EXPECT_EQ(status("HTTP/1.0 101 x"), "bad 8");
  EXPECT_EQ(status("HTTP/2 200"), "bad 6");
  EXPECT_EQ(status("HTTP/1.1  101 "), "bad 10");
  EXPECT_EQ(status("HTTP/1.1 1011 "), "bad 13");
  EXPECT_EQ(status("HTTP/1.1 1 1 "), "bad 11");
  EXPECT_EQ(status("\r\nHTTP/1.1 101 "), "bad 1");
}

}  // namespace
}  // namespace temenos::wire
