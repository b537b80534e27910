// What a box left in a writable directory that a host program would obey by itself, said after the
// box's end: files made or changed, and names in a git index that git would write into its own
// directory.
#pragma once

#include <string>
#include <vector>

#include "box/autoexec.h"

namespace temenos::box {

// Files that host programs run by themselves and that appeared while a box could write there.
struct NewAutoexec {
  std::string path;  // on the host
  std::string reason;
};

struct BoxEnd {
  std::vector<NewAutoexec> made;     // or changed
  std::vector<std::string> indexes;  // git indexes not to be used, a sentence each: why, what to do
  std::vector<std::string> unseen;   // what could not be looked at, a sentence each
};

// Adds to `end` what is to be said of `source`. `directory` is a descriptor of it, `before` what
// was found there before the box started; `libexec` is where temenos-reader lies.
void report_autoexec(int directory, const std::string& source, const AutoexecScan& before,
                     const std::string& libexec, BoxEnd& end);

}  // namespace temenos::box
