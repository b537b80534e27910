#include "base/a.h"
#include "keeper/a.h"
