#include "base/a.h"
#include "proc/a.h"
