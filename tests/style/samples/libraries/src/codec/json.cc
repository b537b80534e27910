#include <boost/json/value.hpp>
#include <string>
#include <sys/mount.h>
