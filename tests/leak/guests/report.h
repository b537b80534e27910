// What the guests print, one attempt a line: "WHAT<TAB>ON<TAB>OUTCOME", OUTCOME being "ok", the
// name of an errno, or what was seen. leak.h reads it.
#pragma once

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>

namespace temenos::leak {

inline void report(const char* what, const std::string& on, const std::string& outcome) {
  printf("%s\t%s\t%s\n", what, on.c_str(), outcome.c_str());
}

// `result` is a system call's; errno is looked at when it is negative.
inline void report_call(const char* what, const std::string& on, long result) {
  report(what, on, result >= 0 ? "ok" : strerrorname_np(errno));
}

}  // namespace temenos::leak
