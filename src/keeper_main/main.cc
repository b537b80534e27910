// temenos-keeper: started by the temenos library with its control socket as descriptor 3, for a box
// or, with --proxy, for a proxy alone; or with --try-limits to say what limits this host keeps.
#include <unistd.h>

#include <cstdio>
#include <string_view>

#include "keeper/keeper.h"
#include "keeper/limit_trials.h"
#include "keeper/proxy_main.h"

int main(int argc, char** argv) {
  constexpr int kControl = 3;
  if (argc == 3 && std::string_view(argv[1]) == temenos::keeper::kTryLimits) {
    return temenos::keeper::try_limits_main(argv[2]);
  }
  if (argc == 4 && std::string_view(argv[1]) == temenos::keeper::kBeProxy) {
    return temenos::keeper::proxy_main(argv[2], argv[3]);
  }
  if (isatty(0) && isatty(1)) {
    fputs("temenos-keeper: this program is started by temenos; run 'temenos --help'\n", stderr);
    return 125;
  }
  return temenos::keeper::keeper_main(kControl);
}
