#include <sys/types.h>

#include "base/a.h"
#include "codec/a.h"
#include "proc/a.h"
