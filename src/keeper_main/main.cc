// temenos-keeper: started by the temenos library with its control socket as descriptor 3, or with
// --try-limits to say what limits this host keeps.
#include <unistd.h>

#include <cstdio>
#include <string_view>

#include "keeper/keeper.h"
#include "keeper/limit_trials.h"

int main(int argc, char** argv) {
  constexpr int kControl = 3;
  if (argc == 3 && std::string_view(argv[1]) == temenos::keeper::kTryLimits) {
    return temenos::keeper::try_limits_main(argv[2]);
  }
  if (isatty(0) && isatty(1)) {
    fputs("temenos-keeper: this program is started by temenos; run 'temenos --help'\n", stderr);
    return 125;
  }
  return temenos::keeper::keeper_main(kControl);
}
