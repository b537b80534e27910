// What the files that host programs obey lead to and name: the targets of symlinks, hop by hop, and
// of git's configurations the programs, included files, directories of hooks and attributes. All of
// it that lies below the directory joins what was found; what does not exist yet is found by the
// second look, when the box has made it.
//
// The configurations are read by temenos-reader, in a jail; the words that come back, and the tree,
// are hostile: walks are bounded, and what a bound cuts off is said. What a named program reads in
// its turn (the library of a script) is not followed.
#pragma once

#include <string>

#include "box/autoexec.h"
#include "box/file_reader.h"

namespace temenos::box {

// `directory` is a descriptor of `source`, an absolute path without a symlink. `before`: the first
// look, at the second one; its git directories are looked at however large the tree has become.
Result<AutoexecScan> look_for_autoexec(int directory, const std::string& source, FileReader& reader,
                                       const AutoexecScan* before = nullptr);

}  // namespace temenos::box
