#include "codec/a.h"
#include "testing/fake.h"
