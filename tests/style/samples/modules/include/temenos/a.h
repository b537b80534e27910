#include "temenos/b.h"
#include "base/a.h"
