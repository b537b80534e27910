// What a box left in a writable directory that a host program would obey by itself, said after the
// box's end: files made or changed, and names in a git index that git would write into its own
// directory.
#pragma once

#include <string>

#include "box/autoexec.h"
#include "temenos/box.h"

namespace temenos::box {

// Adds to `end` what is to be said of `source`. `directory` is a descriptor of it, `before` what
// was found there before the box started; `libexec` is where temenos-reader lies.
void report_autoexec(int directory, const std::string& source, const AutoexecScan& before,
                     const std::string& libexec, BoxEnd& end);

}  // namespace temenos::box
