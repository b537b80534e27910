// temenos-keeper: started by the temenos library with its control socket as descriptor 3.
#include <unistd.h>

#include <cstdio>

#include "keeper/keeper.h"

int main() {
  constexpr int kControl = 3;
  if (isatty(0) && isatty(1)) {
    fputs("temenos-keeper: this program is started by temenos; run 'temenos --help'\n", stderr);
    return 125;
  }
  return temenos::keeper::keeper_main(kControl);
}
