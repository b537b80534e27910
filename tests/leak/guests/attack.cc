// Runs in a box: the attempts of the leak tests, each by a system call of its own, so that no
// tool's caution stands between an attempt and the sandbox.
//
//   attack three VERB ARG…     VERB as the box's root, as uid 1000 without capabilities, and inside
//                              `unshare -Urmn`, each with a line "attacker<TAB>-<TAB>NAME" before
//                              it
//   attack VERB ARG…           as whoever calls
#include "guests/attack.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include "guests/report.h"

namespace {

using temenos::leak::report;

struct Attacker {
  const char* name;
  std::vector<std::string> prefix;
};

const std::vector<Attacker>& attackers() {
  static const std::vector<Attacker> all = {
      {"root", {}},
      {"user",
       {"setpriv", "--reuid=1000", "--regid=1000", "--clear-groups", "--inh-caps=-all",
        "--bounding-set=-all"}},
      {"userns", {"unshare", "-Urmn"}},
  };
  return all;
}

int as_each(char* self, char** words) {
  int worst = 0;
  for (const auto& attacker : attackers()) {
    report("attacker", "-", attacker.name);
    fflush(stdout);
    const pid_t pid = fork();
    if (pid == 0) {
      std::vector<char*> argv;
      for (const auto& word : attacker.prefix) argv.push_back(const_cast<char*>(word.c_str()));
      argv.push_back(self);
      for (char** word = words; *word != nullptr; ++word) argv.push_back(*word);
      argv.push_back(nullptr);
      execvp(argv[0], argv.data());
      perror(argv[0]);
      _exit(99);
    }
    int status = 0;
    if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0) worst = 1;
  }
  return worst;
}

}  // namespace

int main(int argc, char** argv) {
  using namespace temenos::leak;
  if (argc < 2) return 2;
  const std::string verb = argv[1];
  if (verb == "three") return as_each(argv[0], argv + 2);
  const std::vector<std::string> args(argv + 2, argv + argc);
  int status = 2;
  if (verb == "write") status = attack_read_only(args);
  if (verb == "move") status = attack_pins(args);
  if (verb == "reach") status = attack_secret(args);
  if (verb == "look") status = look_around(args);
  if (verb == "owner") status = attack_ownership(args);
  if (verb == "network") status = attack_network(args);
  if (verb == "occupy") status = occupy(args);
  if (verb == "neighbour") status = look_for_other(args);
  fflush(stdout);
  return status;
}
