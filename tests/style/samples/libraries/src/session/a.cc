#include <boost/json/value.hpp>
#include <unistd.h>
#include <boost/asio.hpp>
#include <seccomp.h>
