// An internet of the test's own, for tests of what a box reaches. Two network namespaces: the
// *host*, in which this process and all that it starts are from then on (temenos among it), and the
// *internet*, at the other end of its link, in which every address of every family is there and
// answers (internet/world.py). All that comes to the internet or to the host's own loopback is
// recorded. Nothing of the machine is changed; all is gone with this process. As root only.
//
//   host       45.45.45.2, 2606:4545::2, and on the LAN 192.168.7.2, fd00:7::2; servers on all its
//              addresses, loopback too: speakers on 22 25 631 3000 5432 6379 9999, HTTP on 80 8080
//              8081
//   internet   everything else: speakers on 21 23 25 110 143 853 1080 2525 3000 3128 3306 5900 9000
//              9418 11211 27017, HTTP on 80 8080, HTTPS on 443 8443 (HTTP/2 too where node is),
//              PostgreSQL on 5432; silent 45.46.99.0/24
//   resolver   45.45.45.1, and 2606:4545::1
//
// Each server's first words are "reached ADDRESS:PORT". The host trusts the certificates: they are
// for the names of kCertified.
#pragma once

#include <sys/types.h>

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "testing/cli.h"

namespace temenos::testing {

inline constexpr char kHost4[] = "45.45.45.2";
inline constexpr char kHost6[] = "2606:4545::2";
inline constexpr char kHostLan[] = "192.168.7.2";
inline constexpr char kResolver4[] = "45.45.45.1";
inline constexpr char kResolver6[] = "2606:4545::1";

// The names that zone() begins with have the addresses 45.46.0.10 and so on, in this order, and
// 2606:4546::10 and so on.
inline const std::vector<std::string> kCertified{
    "allowed.site",     "other.site", "refused.site", "evil.net", "allowed.site.evil.net",
    "evilallowed.site", "pypi.site",  "npm.site",     "apt.site", "git.site"};

class PacketRecorder;

class TestInternet {
 public:
  // Empty; or why there can be none here.
  static std::string lacking();

  explicit TestInternet(const TestHost& host);
  ~TestInternet();
  TestInternet(const TestInternet&) = delete;
  TestInternet& operator=(const TestInternet&) = delete;

  // Names beside kCertified, lines as the class Dns of world.py reads them; `lines` replaces all
  // that an earlier call gave.
  void zone(const std::string& lines) const;

  // What has come so far, each once:
  //   "dns NAME"            a question to the resolvers
  //   "tcp ADDRESS:PORT"    a connection begun
  //   "udp ADDRESS:PORT"    any other datagram
  //   "icmp ADDRESS", "ip N ADDRESS", "stray tcp ADDRESS:PORT" (of no connection that was begun)
  // with "host " before it for what came by the host's loopback, which is the way to all its own
  // addresses. Never less than what was sent before the call.
  std::set<std::string> record() const;
  void forget() const;  // all that was recorded

  // Files of the server of HOST, made below here: www()/HOST/PATH. Git repositories: git()/NAME.
  std::string www() const { return directory_ + "/www"; }
  std::string git() const { return directory_ + "/git"; }

  // More servers, of programs that a machine may lack: empty, or why there is none.
  std::string serve_ssh();  // port 22; who logs in as root with ssh_key() is let in
  std::string ssh_key() const { return directory_ + "/ssh/key"; }
  std::string serve_redis();  // port 6379

  // `ip ARGS` on the host: its addresses change while boxes live.
  void ip(const std::string& args) const;

  // What they have complained of.
  std::string words_of_servers() const;
  // Ends the servers. The namespaces stay.
  void stop();

 private:
  struct Server {
    pid_t pid;
    UniqueFd in;  // its end is the server's
    UniqueFd out;
  };
  void make_links() const;
  void make_files() const;
  void cover_etc();
  // `path` shows `source` from now on, in this mount namespace.
  void cover(const std::string& path, const std::string& source);
  // In the namespace `net`, until stop().
  Server start(const UniqueFd& net, const std::vector<std::string>& argv) const;
  // Until it has printed a line with `word`.
  void start_and_see(const UniqueFd& net, const std::vector<std::string>& argv,
                     const std::string& word);

  std::string directory_;
  std::vector<std::string> covered_;
  UniqueFd host_;
  UniqueFd internet_;
  std::unique_ptr<PacketRecorder> recorder_;
  std::vector<Server> servers_;
};

}  // namespace temenos::testing
