#include "sys/a.h"
#include "temenos/error.h"
// #include "box/a.h"
#include "a.h"
