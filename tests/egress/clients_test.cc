// Real clients in a box against real servers: those that are allowed work with no setting in the
// box, those that are refused fail at once and, where their protocol has words, say why.
#include <fstream>

#include "tests/egress/egress_test.h"

namespace temenos::testing {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kRefusal[] = "egress refused: refused.site:80 is not in the allowlist";
// Names beside those of kCertified.
constexpr char kMore[] = R"sh(
db.world.site 45.46.1.1 2606:4546::1:1
redis.world.site 45.46.1.2
json.world.site 45.46.1.3
slow.world.site delay=3 45.46.1.4
alias.world.site cname=allowed.site
)sh";

class ClientsTest : public EgressTest {
 protected:
  void SetUp() override {
    EgressTest::SetUp();
    if (!IsSkipped()) internet().zone(kMore);
  }
  // Skips the test, which a machine of CI must not need.
  static bool have(const char* program) {
    const bool there = access(program, X_OK) == 0;
    if (!there && getenv("TEMENOS_MUST_WORK") != nullptr) {
      ADD_FAILURE() << program << " is not installed";
    }
    return there;
  }
  // A file of a server, whatever lies there.
  void serve(const std::string& path, const std::string& content) const {
    host().file("internet/www/" + path, content);
  }
  static void expect_reached(const Tried& tried, const std::string& words = "reached") {
    EXPECT_EQ(tried.status, 0) << tried.text;
    EXPECT_THAT(tried.text, HasSubstr(words));
  }
  // It failed, at once, with these words.
  template <typename Matcher>
  static void expect_refused(const Tried& tried, const Tried& allowed, const Matcher& words) {
    EXPECT_NE(tried.status, 0) << tried.text;
    EXPECT_NE(tried.status, 124) << "it hung: " << tried.text;
    EXPECT_THAT(tried.text, words);
    EXPECT_THAT(tried.text, Not(HasSubstr("reached")));
    EXPECT_TRUE(quick(tried, allowed));
  }
  // What may be seen of allowed.site.
  static std::set<std::string> of_allowed() {
    return {"dns allowed.site", "tcp 45.46.0.10:443", "tcp [2606:4546::10]:443",
            "tcp 45.46.0.10:80", "tcp [2606:4546::10]:80"};
  }
};
INSTANTIATE_TEST_SUITE_P(Each, ClientsTest, everybody(), name_of);

TEST_P(ClientsTest, Curl) {
  auto t = tried({"allowed.site"}, R"sh(
    for how in proxy direct; do
      run=; [ $how = proxy ] || run=$direct
      try $how.https $run curl -sS https://allowed.site/a
      try $how.http $run curl -sS http://allowed.site/b
      try $how.large $run curl --http1.1 -sS -o /dev/null -w 'reached %{size_download}' https://allowed.site/bytes/30000000
      try $how.chunked $run curl -sS http://allowed.site/chunked
      try $how.post $run sh -c 'head -c 3000000 /dev/zero | curl -sS --data-binary @- -H "Expect: 100-continue" http://allowed.site/'
      try $how.two $run curl -sS http://allowed.site/1 http://allowed.site/2
      # By IPv6 there is no way to a proxy that has an address of IPv4.
      [ $how = proxy ] || try v4 $run curl -4sS https://allowed.site/
      [ $how = proxy ] || try v6 $run curl -6sS https://allowed.site/
      try $how.no.https $run curl -sS https://refused.site/
      try $how.no.http $run curl -sS -f -w '%{errormsg}' http://refused.site/
      try $how.no.text $run curl -sS http://refused.site/
    done)sh");
  expect_reached(t["v4"]);
  expect_reached(t["v6"]);
  for (const std::string how : {"proxy", "direct"}) {
    SCOPED_TRACE(how);
    expect_reached(t[how + ".https"]);
    expect_reached(t[how + ".http"]);
    expect_reached(t[how + ".large"], "reached 30000000");
    expect_reached(t[how + ".chunked"]);
    expect_reached(t[how + ".post"], "body: 3000000");
    expect_reached(t[how + ".two"], "/2");
    const auto words = how == "proxy" ? HasSubstr("403") : HasSubstr("alert");
    expect_refused(t[how + ".no.https"], t[how + ".https"], words);
    expect_refused(t[how + ".no.http"], t[how + ".http"], HasSubstr("403"));
    EXPECT_THAT(t[how + ".no.text"].text, AllOf(HasSubstr(kRefusal), HasSubstr("--allow-host")));
  }
  expect_only(of_allowed());
}

// By the box's own clock, from the first packet to the reason: no client's start is in it, as it is
// in quick().
TEST_P(ClientsTest, RefusalsComeWithinASecond) {
  auto t = tried({"allowed.site"}, R"sh(
    python3 - <<'EOF'
import os, socket, ssl, time, urllib.parse
proxy = urllib.parse.urlsplit(os.environ['http_proxy'])
head = b'GET / HTTP/1.1\r\nHost: refused.site\r\n\r\n'
def ask(address, words):
    with socket.create_connection(address, 30) as s:
        s.sendall(words)
        return ' '.join(s.recv(4096).decode(errors='replace').split())
def ask_tls(address):
    with socket.create_connection(address, 30) as s, \
            ssl.create_default_context().wrap_socket(s, server_hostname='refused.site'):
        return 'reached'
ways = {
    'http': lambda: ask(('refused.site', 80), head),
    'https': lambda: ask_tls(('refused.site', 443)),
    'https.address': lambda: ask_tls(('45.45.45.2', 443)),
    'other': lambda: ask(('refused.site', 5432), b'hello'),
    'silent': lambda: ask(('refused.site', 2525), b''),
    'address': lambda: ask(('45.45.45.2', 80), head),
    'connect': lambda: ask((proxy.hostname, proxy.port), b'CONNECT refused.site:443 HTTP/1.1\r\nHost: refused.site:443\r\n\r\n'),
    'get': lambda: ask((proxy.hostname, proxy.port), head.replace(b'/', b'http://refused.site/', 1)),
}
for name, way in ways.items():
    times = []
    for _ in range(3):
        begin = time.monotonic()
        try:
            text = way()
        except OSError as error:
            text = str(error)
        times.append(1000 * (time.monotonic() - begin))
    print(name, 0, f'{sorted(times)[1]:.0f}', text, sep='\t')
EOF
)sh");
  EXPECT_EQ(t.size(), 8u);
  for (const auto& [name, one] : t) {
    SCOPED_TRACE(name);
    EXPECT_LE(one.ms, patience(1) * 1000L) << one.text;
    EXPECT_THAT(one.text, Not(HasSubstr("reached")));
  }
  for (const char* name : {"http", "address", "connect", "get"}) {
    EXPECT_THAT(t[name].text, HasSubstr("egress refused: ")) << name;
    EXPECT_THAT(t[name].text, HasSubstr("is not in the allowlist")) << name;
  }
  for (const char* name : {"https", "https.address"}) {
    EXPECT_THAT(t[name].text, HasSubstr("access denied")) << name;
  }
  for (const char* name : {"other", "silent"})
    EXPECT_THAT(t[name].text, HasSubstr("reset")) << name;
  expect_only({});
}

TEST_P(ClientsTest, CurlWithHttp2) {
  if (!have("/usr/bin/node")) GTEST_SKIP() << "the server is node's";
  auto t = tried({"allowed.site"}, R"sh(
    try proxy curl -sS --http2 https://allowed.site/ https://allowed.site/again
    try direct $direct curl -sS --http2 --data hello https://allowed.site/)sh");
  expect_reached(t["proxy"], "GET /again first: True");
  expect_reached(t["direct"], "body: 5");
  for (const char* how : {"proxy", "direct"}) {
    EXPECT_THAT(t[how].text, HasSubstr("x-http: 2")) << "another version of HTTP";
  }
  expect_only(of_allowed());
}

TEST_P(ClientsTest, Wget) {
  if (!have("/usr/bin/wget")) GTEST_SKIP() << "no wget";
  auto t = tried({"allowed.site"}, R"sh(
    for how in proxy direct; do
      run=; [ $how = proxy ] || run=$direct
      try $how.https $run wget -qO- --tries=1 https://allowed.site/
      try $how.http $run wget -qO- --tries=1 http://allowed.site/
      try $how.no.https $run wget -nv -O- --tries=1 https://refused.site/
      try $how.no.http $run wget -qO- --tries=1 --content-on-error http://refused.site/
    done)sh");
  for (const std::string how : {"proxy", "direct"}) {
    SCOPED_TRACE(how);
    expect_reached(t[how + ".https"]);
    expect_reached(t[how + ".http"]);
    expect_refused(t[how + ".no.https"], t[how + ".https"],
                   how == "proxy" ? HasSubstr("Forbidden") : HasSubstr("denied"));
    expect_refused(t[how + ".no.http"], t[how + ".http"], HasSubstr(kRefusal));
  }
  expect_only(of_allowed());
}

TEST_P(ClientsTest, PythonRequestsAndUrllib) {
  const bool requests = host_shell("/usr/bin/python3 -c 'import requests' 2>&1").empty();
  if (!requests && getenv("TEMENOS_MUST_WORK") != nullptr) ADD_FAILURE() << "no python3-requests";
  auto t = tried({"allowed.site"}, std::string("modules='urllib ") + (requests ? "requests" : "") +
                                       R"sh('
    cat >/tmp/urllib_.py <<'END'
import sys, urllib.request, urllib.error
try:
    print(urllib.request.urlopen(sys.argv[1], timeout=20).read().decode())
except urllib.error.HTTPError as error:
    sys.exit(f'{error}: {error.read().decode()}')
END
    cat >/tmp/requests_.py <<'END'
import sys, requests
answer = requests.get(sys.argv[1], timeout=20)
print(answer.status_code, answer.text)
sys.exit(0 if answer.ok else 1)
END
    for module in $modules; do for how in proxy direct; do
      run=; [ $how = proxy ] || run=$direct
      run="$run /usr/bin/python3 /tmp/${module}_.py"
      try $module.$how.https $run https://allowed.site/
      try $module.$how.http $run http://allowed.site/
      try $module.$how.no.https $run https://refused.site/
      try $module.$how.no.http $run http://refused.site/
    done; done)sh");
  for (const std::string module : {"urllib", "requests"}) {
    if (module == "requests" && !requests) continue;
    for (const std::string how : {".proxy", ".direct"}) {
      SCOPED_TRACE(module + how);
      expect_reached(t[module + how + ".https"]);
      expect_reached(t[module + how + ".http"]);
      expect_refused(t[module + how + ".no.https"], t[module + how + ".https"],
                     how == ".proxy" ? HasSubstr("403") : HasSubstr("ALERT_ACCESS_DENIED"));
      expect_refused(t[module + how + ".no.http"], t[module + how + ".http"], HasSubstr(kRefusal));
    }
  }
  expect_only(of_allowed());
}

// It tries again five times, with more and more seconds between, whatever the answer is, and says
// why when it does: once is enough.
TEST_P(ClientsTest, Pip) {
  const std::string wheel =
      host_shell("ls /usr/share/python-wheels/pip-*.whl 2>/dev/null | head -1");
  if (wheel.empty()) {
    if (getenv("TEMENOS_MUST_WORK") != nullptr) FAIL() << "python3-venv is not installed";
    GTEST_SKIP() << "no pip";
  }
  serve("pypi.site/simple/tiny/index.html",
        "<!DOCTYPE html><html><body><a "
        "href=\"/files/tiny-1-py3-none-any.whl\">tiny-1</a></body></html>");
  ASSERT_EQ(host_shell("mkdir -p " + internet().www() + "/pypi.site/files && cd " +
                       internet().www() + R"sh(/pypi.site/files && python3 -c '
import zipfile
with zipfile.ZipFile("tiny-1-py3-none-any.whl", "w") as wheel:
    wheel.writestr("tiny.py", "word = \"reached\"\n")
    wheel.writestr("tiny-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1\n")
    wheel.writestr("tiny-1.dist-info/WHEEL",
                   "Wheel-Version: 1.0\nGenerator: a\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    wheel.writestr("tiny-1.dist-info/RECORD", "")
' 2>&1)sh"),
            "");
  auto t = tried({"pypi.site"}, "export PYTHONPATH=" + wheel.substr(0, wheel.size() - 1) + R"sh(
    pip="/usr/bin/python3 -m pip --disable-pip-version-check install --no-cache-dir --retries 1"
    try yes $pip --index-url https://pypi.site/simple --target /tmp/yes tiny
    try direct $direct $pip --index-url https://pypi.site/simple --target /tmp/direct tiny
    try no $pip --index-url https://refused.site/simple --target /tmp/no tiny
    try use sh -c 'cd /tmp/yes && python3 -c "import tiny; print(tiny.word)"')sh");
  expect_reached(t["yes"], "Successfully installed tiny");
  expect_reached(t["direct"], "Successfully installed tiny");
  expect_reached(t["use"]);
  expect_refused(t["no"], t["yes"], HasSubstr("403"));
  expect_only({"dns pypi.site", "tcp 45.46.0.16:443", "tcp [2606:4546::16]:443"});
}

TEST_P(ClientsTest, Npm) {
  // Debian's is 351 packages (docs/dependencies.md), so it is no failure where there is none.
  if (access("/usr/bin/npm", X_OK) != 0) GTEST_SKIP() << "no npm";
  ASSERT_EQ(host_shell("mkdir -p " + internet().www() + "/npm.site/package && cd " +
                       internet().www() + R"sh(/npm.site &&
      echo '{"name":"tiny","version":"1.0.0"}' >package/package.json &&
      echo 'module.exports = "reached"' >package/index.js && tar czf tiny.tgz package &&
      sum=$(sha1sum tiny.tgz | cut -d' ' -f1) &&
      echo '{"name":"tiny","dist-tags":{"latest":"1.0.0"},"versions":{"1.0.0":{"name":"tiny",
      "version":"1.0.0","dist":{"tarball":"https://npm.site/tiny.tgz","shasum":"'$sum'"}}}}' >tiny)sh"),
            "");
  auto t = tried({"npm.site"}, R"sh(
    export NODE_EXTRA_CA_CERTS=/etc/ssl/certs/ca-certificates.crt
    npm="npm install --no-audit --no-fund --no-update-notifier --fetch-retries 0 --loglevel http"
    mkdir -p /tmp/yes /tmp/direct /tmp/no
    try yes $npm --prefix /tmp/yes --registry https://npm.site/ tiny
    try direct $direct $npm --prefix /tmp/direct --registry https://npm.site/ tiny
    try no $npm --prefix /tmp/no --registry https://refused.site/ tiny
    try use sh -c 'cd /tmp/yes && node -p "require(\"tiny\")"')sh");
  expect_reached(t["yes"], "added 1 package");
  expect_reached(t["direct"], "added 1 package");
  expect_reached(t["use"]);
  expect_refused(t["no"], t["yes"], HasSubstr("403"));
  expect_only({"dns npm.site", "tcp 45.46.0.17:443", "tcp [2606:4546::17]:443"});
}

TEST_P(ClientsTest, GitByHttpsAndSsh) {
  if (!have("/usr/bin/git")) GTEST_SKIP() << "no git";
  ASSERT_EQ(host_shell("cd " + internet().git() + R"sh( && git init -q --bare tiny.git &&
      git init -q work && cd work && echo reached >file && git add file &&
      git -c user.name=a -c user.email=a@b commit -qm first && git push -q ../tiny.git HEAD:master &&
      rm -r ../work 2>&1)sh"),
            "");
  const auto no_ssh = internet().serve_ssh();
  auto t = tried({"git.site", "git.site:22"},
                 R"sh(
    cp /egress/ssh/key /tmp/key && chmod 600 /tmp/key
    export GIT_SSH_COMMAND="ssh -i /tmp/key -F none -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null"
    try https git clone https://git.site/git/tiny.git /tmp/https
    try direct $direct git clone https://git.site/git/tiny.git /tmp/direct
    try use cat /tmp/https/file
    try push sh -c 'cd /tmp/https && echo more >>file && git -c user.name=a -c user.email=a@b commit -qam more && git push'
    try no git clone https://refused.site/git/tiny.git /tmp/no
    try no.direct $direct git clone https://refused.site/git/tiny.git /tmp/no2
    try ssh git clone root@git.site:)sh" +
                     internet().git() + R"sh(/tiny.git /tmp/ssh
    try no.ssh git clone root@refused.site:/tiny.git /tmp/no3)sh",
                 {"--volume", internet().git() + "/../ssh:/egress/ssh:ro"});
  expect_reached(t["https"], "Cloning");
  expect_reached(t["direct"], "Cloning");
  expect_reached(t["use"]);
  expect_reached(t["push"], "master -> master");
  expect_refused(t["no"], t["https"], HasSubstr("403"));
  expect_refused(t["no.direct"], t["direct"], HasSubstr("denied"));
  if (no_ssh.empty()) {
    expect_reached(t["ssh"], "Cloning");
    expect_refused(t["no.ssh"], t["ssh"], HasSubstr("reset"));
  } else {
    EXPECT_EQ(getenv("TEMENOS_MUST_WORK"), nullptr) << no_ssh;
  }
  expect_only({"dns git.site", "tcp 45.46.0.19:443", "tcp [2606:4546::19]:443", "tcp 45.46.0.19:22",
               "tcp [2606:4546::19]:22"});
}

// The server waits for the client in the first, and the client for the server in the second.
TEST_P(ClientsTest, PsqlAndRedis) {
  if (!have("/usr/bin/psql") || !have("/usr/bin/redis-cli")) GTEST_SKIP() << "no psql or redis-cli";
  ASSERT_EQ(internet().serve_redis(), "");
  auto t = tried({"db.world.site:5432", "redis.world.site:6379", "allowed.site:2525"}, R"sh(
    try psql psql 'host=db.world.site user=a dbname=a' -Atc 'select 1'
    try no.psql psql 'host=refused.site user=a dbname=a' -Atc 'select 1'
    try no.port psql 'host=db.world.site port=5433 user=a dbname=a' -Atc 'select 1'
    try redis redis-cli -h redis.world.site ping
    try no.redis redis-cli -h refused.site ping
    try speaks bash -c 'exec 3<>/dev/tcp/allowed.site/2525 && head -1 <&3'
    try no.speaks bash -c 'exec 3<>/dev/tcp/refused.site/2525 && head -1 <&3')sh");
  expect_reached(t["psql"]);
  expect_refused(t["no.psql"], t["psql"], Not(HasSubstr("reached")));
  expect_refused(t["no.port"], t["psql"], Not(HasSubstr("reached")));
  expect_reached(t["redis"], "PONG");
  EXPECT_THAT(t["no.redis"].text, Not(HasSubstr("PONG")));
  EXPECT_TRUE(quick(t["no.redis"], t["redis"]));
  expect_reached(t["speaks"], ":2525");
  EXPECT_THAT(t["no.speaks"].text, Not(HasSubstr("reached")));
  EXPECT_TRUE(quick(t["no.speaks"], t["speaks"]));
  expect_only({"dns db.world.site", "tcp 45.46.1.1:5432", "tcp [2606:4546::1:1]:5432",
               "dns redis.world.site", "tcp 45.46.1.2:6379", "dns allowed.site",
               "tcp 45.46.0.10:2525", "tcp [2606:4546::10]:2525"});
}

TEST_P(ClientsTest, NodeFetchAndWebSockets) {
  if (!have("/usr/bin/node")) GTEST_SKIP() << "no node";
  const bool ws = access("/usr/share/nodejs/ws", F_OK) == 0;
  if (!ws && getenv("TEMENOS_MUST_WORK") != nullptr) ADD_FAILURE() << "no node-ws";
  auto t = tried({"allowed.site"}, R"sh(
    export NODE_EXTRA_CA_CERTS=/etc/ssl/certs/ca-certificates.crt NODE_PATH=/usr/share/nodejs
    cat >/tmp/fetch.js <<'END'
fetch(process.argv[2]).then(async (r) => { console.log(r.status, await r.text()); process.exit(r.ok ? 0 : 1); })
  .catch((error) => { console.log(error.message, error.cause); process.exit(2); });
END
    cat >/tmp/ws.js <<'END'
const socket = new (require('ws'))(process.argv[2]);
socket.on('message', (data) => { console.log(String(data));
  if (String(data) === 'hello') process.exit(0); socket.send('hello'); });
socket.on('error', (error) => { console.log(error.message); process.exit(2); });
END
    run="$direct node"
    try https $run /tmp/fetch.js https://allowed.site/
    try http $run /tmp/fetch.js http://allowed.site/
    try no.https $run /tmp/fetch.js https://refused.site/
    try no.http $run /tmp/fetch.js http://refused.site/
    try wss $run /tmp/ws.js wss://allowed.site/ws
    try ws $run /tmp/ws.js ws://allowed.site/ws
    try no.wss $run /tmp/ws.js wss://refused.site/ws
    try no.ws $run /tmp/ws.js ws://refused.site/ws)sh");
  expect_reached(t["https"]);
  expect_reached(t["http"]);
  expect_refused(t["no.https"], t["https"], AnyOf(HasSubstr("alert"), HasSubstr("ALERT")));
  expect_refused(t["no.http"], t["http"], HasSubstr(kRefusal));
  if (ws) {
    expect_reached(t["wss"], "hello");
    expect_reached(t["ws"], "hello");
    expect_refused(t["no.wss"], t["wss"], AnyOf(HasSubstr("alert"), HasSubstr("ALERT")));
    expect_refused(t["no.ws"], t["ws"], HasSubstr("403"));
  }
  expect_only(of_allowed());
}

// It asks no environment for a proxy.
TEST_P(ClientsTest, JavaHttpClient) {
  if (!have("/usr/bin/javac")) GTEST_SKIP() << "no Java";
  const std::string dir = host().dir("java");
  std::ofstream(dir + "/Fetch.java") << R"(
import java.net.URI;
import java.net.http.*;
class Fetch {
  public static void main(String[] words) throws Exception {
    var request = HttpRequest.newBuilder(URI.create(words[0])).build();
    var answer = HttpClient.newHttpClient().send(request, HttpResponse.BodyHandlers.ofString());
    System.out.println(answer.statusCode() + " " + answer.body());
    System.exit(answer.statusCode() == 200 ? 0 : 1);
  }
}
)";
  ASSERT_EQ(host_shell("cd " + dir +
                       " && javac Fetch.java 2>&1 && keytool -importcert -noprompt -alias test "
                       "-file /etc/ssl/certs/ca-certificates.crt -keystore trust -storepass "
                       "changeit 2>&1 | grep -v added"),
            "");
  auto t = tried({"allowed.site"}, R"sh(
    java="java -Djavax.net.ssl.trustStore=/egress/java/trust -Djavax.net.ssl.trustStorePassword=changeit
      -XX:TieredStopAtLevel=1 -cp /egress/java Fetch"
    try https $java https://allowed.site/
    try http $java http://allowed.site/
    try no.https $java https://refused.site/
    try no.http $java http://refused.site/)sh",
                 {"--volume", dir + ":/egress/java:ro"});
  expect_reached(t["https"]);
  expect_reached(t["http"]);
  expect_refused(t["no.https"], t["https"], HasSubstr("access_denied"));
  expect_refused(t["no.http"], t["http"], HasSubstr(kRefusal));
  expect_only(of_allowed());
}

// gron: the smallest program of Debian's with Go's net/http in it; the compiler is 350 MB. It asks
// no environment for a proxy.
TEST_P(ClientsTest, GoNetHttp) {
  if (!have("/usr/bin/gron")) GTEST_SKIP() << "no gron";
  serve("json.world.site/word.json", R"({"word": "reached"})");
  auto t = tried({"json.world.site"}, R"sh(
    try https gron https://json.world.site/word.json
    try http gron http://json.world.site/word.json
    try no.https gron https://refused.site/word.json
    try no.http gron http://refused.site/word.json)sh");
  expect_reached(t["https"]);
  expect_reached(t["http"]);
  expect_refused(t["no.https"], t["https"], HasSubstr("access denied"));
  // It reads the text of the refusal as JSON, and says that it is none.
  expect_refused(t["no.http"], t["http"], HasSubstr("invalid character 'e'"));
  expect_only({"dns json.world.site", "tcp 45.46.1.3:443", "tcp 45.46.1.3:80"});
}

TEST_P(ClientsTest, Apt) {
  ASSERT_EQ(host_shell("mkdir -p " + internet().www() + "/apt.site/tiny/DEBIAN && cd " +
                       internet().www() + R"sh(/apt.site &&
      printf 'Package: tiny\nVersion: 1\nArchitecture: all\nMaintainer: a <a@b>\nDescription: a\n' \
        >tiny/DEBIAN/control && dpkg-deb --root-owner-group -b tiny tiny.deb >/dev/null &&
      { cat tiny/DEBIAN/control; printf 'Filename: ./tiny.deb\nSize: %s\nSHA256: %s\n' \
        $(stat -c %s tiny.deb) $(sha256sum tiny.deb | cut -d' ' -f1); } >Packages)sh"),
            "");
  auto t = tried({"apt.site"}, R"sh(
    mkdir -p /tmp/apt/state/lists/partial /tmp/apt/cache/archives/partial && cd /tmp/apt
    apt="apt-get -q -o Dir::Etc::sourcelist=/tmp/apt/list -o Dir::Etc::sourceparts=- -o Dir::State=/tmp/apt/state
      -o Dir::State::status=/dev/null -o Dir::Cache=/tmp/apt/cache -o APT::Sandbox::User=root
      -o Acquire::Retries=0 -o Acquire::Languages=none"
    for how in proxy direct; do
      run=; [ $how = proxy ] || run=$direct
      echo 'deb [trusted=yes] http://apt.site/ ./' >list
      try $how.update $run $apt update
      try $how.download $run $apt download tiny
      mv tiny_1_all.deb $how.deb
      echo 'deb [trusted=yes] http://refused.site/ ./' >list
      try $how.no $run $apt update --error-on=any
      rm -r state/lists && mkdir -p state/lists/partial
    done
    try use dpkg-deb -f proxy.deb Package)sh");
  for (const std::string how : {"proxy", "direct"}) {
    SCOPED_TRACE(how);
    expect_reached(t[how + ".update"], "http://apt.site");
    expect_reached(t[how + ".download"], "tiny");
    expect_refused(t[how + ".no"], t[how + ".update"], HasSubstr("403"));
  }
  expect_reached(t["use"], "tiny");
  expect_only({"dns apt.site", "tcp 45.46.0.18:80", "tcp [2606:4546::18]:80"});
}

TEST_P(ClientsTest, EventsArriveAtOnce) {
  auto t = tried({"allowed.site"}, R"sh(
    cat >/tmp/events.py <<'END'
import socket, ssl, sys
for port in (80, 443):
    peer = socket.create_connection(('allowed.site', port), 20)
    if port == 443:
        peer = ssl.create_default_context().wrap_socket(peer, server_hostname='allowed.site')
    peer.sendall(b'GET /sse HTTP/1.1\r\nHost: allowed.site\r\n\r\n')
    seen = b''
    while b'first' not in seen:
        seen += peer.recv(4096)
    # The server says the second one when it hears that the first has come.
    peer.sendall(b'\n') if port == 443 else peer.shutdown(socket.SHUT_WR)
    while b'second' not in seen:
        piece = peer.recv(4096)
        if not piece:
            sys.exit(f'it ended after {seen}')
        seen += piece
print('both')
END
    try events python3 /tmp/events.py)sh");
  expect_reached(t["events"], "both");
  expect_only(of_allowed());
}

TEST_P(ClientsTest, NamesAreTheHosts) {
  auto t =
      tried({"inhosts.world.site", "alias.world.site", "*.world.site:2525", "45.46.7.0/24:8080"},
            R"sh(
    try hosts curl -sS http://inhosts.world.site/
    try alias curl -sS http://alias.world.site/
    try slow bash -c 'exec 3<>/dev/tcp/slow.world.site/2525 && head -1 <&3'
    try block $direct curl -sS http://45.46.7.7:8080/
    try proxy curl -sS http://45.46.7.8:8080/
    try nobody $direct curl -sS http://nobody.world.site:2525/
    try no.apex $direct curl -sS http://world.site:2525/
    try no.block $direct curl -sS http://45.46.8.1:8080/
    try no.port $direct curl -sS http://45.46.7.7:80/
    try case curl -sS http://ALIAS.World.Site./)sh");
  expect_reached(t["hosts"], "reached 45.46.0.77:80");
  expect_reached(t["alias"]);
  expect_reached(t["slow"], "reached 45.46.1.4:2525");
  expect_reached(t["block"], "reached 45.46.7.7:8080");
  expect_reached(t["proxy"], "reached 45.46.7.8:8080");
  EXPECT_THAT(t["nobody"].text, Not(HasSubstr("reached 45")));
  for (const char* name : {"no.apex", "no.block", "no.port"}) {
    EXPECT_THAT(t[name].text, Not(HasSubstr("reached"))) << name;
    EXPECT_TRUE(quick(t[name], t["block"]));
  }
  expect_only({"tcp 45.46.0.77:80", "dns alias.world.site", "dns allowed.site", "tcp 45.46.0.10:80",
               "tcp [2606:4546::10]:80", "dns slow.world.site", "tcp 45.46.1.4:2525",
               "tcp 45.46.7.7:8080", "tcp 45.46.7.8:8080", "dns nobody.world.site",
               // Only a file of the host has it; a resolver may be asked for its other family.
               "dns inhosts.world.site"});
}

// The box's loopback is its own: the variables that name a proxy do not send its clients elsewhere.
TEST_P(ClientsTest, AServerOnLocalhostInTheBox) {
  auto t = tried({"allowed.site"}, R"sh(
    cat >/tmp/server.py <<'END'
import http.server, socket
class Server(http.server.ThreadingHTTPServer):
    address_family = socket.AF_INET6
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header('Content-Type', 'application/json')
        self.end_headers()
        self.wfile.write(b'{"word": "in the box"}')
    def log_message(self, *words):
        pass
server = Server(('::', 8000), Handler)
print('ready', flush=True)
server.serve_forever()
END
    coproc python3 /tmp/server.py; read ready <&${COPROC[0]}
    for name in localhost 127.0.0.1 '[::1]'; do
      try curl.$name curl -gsS http://$name:8000/
      try urllib.$name python3 -c 'import sys, urllib.request as u; print(u.urlopen(sys.argv[1]).read())' http://$name:8000/
      [ ! -x /usr/bin/wget ] || try wget.$name wget -qO- --tries=1 http://$name:8000/
      ! python3 -c 'import requests' 2>/dev/null ||
        try requests.$name python3 -c 'import sys, requests; print(requests.get(sys.argv[1]).text)' http://$name:8000/
    done
    [ ! -x /usr/bin/npm ] || try npm npm view --registry http://localhost:8000/ tiny --json --fetch-retries 0
    [ ! -x /usr/bin/npm ] || try npm.ping npm ping --registry http://localhost:8000/ --fetch-retries 0
    kill $COPROC_PID)sh");
  EXPECT_GE(t.size(), 6u);
  for (const auto& [name, one] : t) {
    SCOPED_TRACE(name);
    EXPECT_EQ(one.status, 0) << one.text;
    if (!name.starts_with("npm")) EXPECT_THAT(one.text, HasSubstr("in the box"));
  }
  expect_only({});
}

TEST_P(ClientsTest, OnePortOfTheHostsLoopback) {
  auto t = tried({"127.0.0.1:8080"}, R"sh(
    name=host.temenos.internal
    try proxy curl -sS http://$name:8080/
    try direct $direct curl -sS http://$name:8080/
    try address curl -sS --noproxy '' -x "$http_proxy" http://127.0.0.1:8080/
    for port in 8081 9999 22 80; do
      try no.proxy.$port curl -sS http://$name:$port/
      try no.direct.$port $direct curl -sS http://$name:$port/
      try no.address.$port curl -sS --noproxy '' -x "$http_proxy" http://127.0.0.1:$port/
    done
    try no.other curl -sS http://45.45.45.2:8080/
    try no.lan $direct curl -sS http://192.168.7.2:8080/
    try no.own $direct curl -sS http://127.0.0.1:8080/)sh");
  for (const char* name : {"proxy", "direct", "address"}) {
    SCOPED_TRACE(name);
    expect_reached(t[name], "reached 127.0.0.1:8080");
  }
  for (const auto& [name, one] : t) {
    if (name.starts_with("no.")) EXPECT_THAT(one.text, Not(HasSubstr("reached"))) << name;
    EXPECT_TRUE(quick(one, t["direct"])) << name;
  }
  expect_only({"host tcp 127.0.0.1:8080"});
}

TEST_P(ClientsTest, AnEmptyListReachesNothing) {
  auto t = tried({}, R"sh(
    for url in http://allowed.site/ https://allowed.site/ http://45.46.0.10/ http://[2606:4546::10]/ \
        http://host.temenos.internal:8080/ http://198.18.1.0/ http://10.0.0.1:8080/ ftp://allowed.site/; do
      try proxy.$url curl -gsS -f $url
      try direct.$url $direct curl -gsS -f $url
    done
    try text curl -sS http://allowed.site/)sh");
  EXPECT_EQ(t.size(), 17u);
  for (const auto& [name, one] : t) {
    SCOPED_TRACE(name);
    if (name != "text") EXPECT_NE(one.status, 0);
    EXPECT_THAT(one.text, Not(HasSubstr("reached")));
    EXPECT_LT(one.ms, 1000 * patience(3)) << "of which most is curl's start";
  }
  EXPECT_THAT(t["text"].text, HasSubstr("egress refused: allowed.site:80 is not in the allowlist"));
  expect_only({});
}

}  // namespace
}  // namespace temenos::testing
