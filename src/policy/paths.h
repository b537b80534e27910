// Paths of a policy: their normal form, where in a box something may be mounted, and what of the
// host may be bound. Lexical only. check_source is for the box layer too, which calls it again with
// the path that the source really leads to.
//
// Thread-safety: pure functions.
#pragma once

#include <string>
#include <string_view>

#include "temenos/error.h"
#include "temenos/volume.h"

namespace temenos {

// Absolute; "//", "/./" and a trailing slash are folded; "..", control bytes, invalid UTF-8, a
// component over 255 bytes and more than 4095 bytes are refused ("a/.." is not lexical when a is a
// symlink). `field` names the value in errors, here and below.
Result<std::string> normal_path(std::string_view text, std::string_view field);
// `inner` equals `outer` or lies below it. Both normal.
bool is_at_or_below(std::string_view inner, std::string_view outer);
// Not /, not a place that the box needs for itself. `target` is normal.
Result<void> check_target(std::string_view target, std::string_view field);
// Kernel file systems are never bound and system directories never writable; home directories'
// parents, and writable directories directly below /, need `home_bind` (allow::HomeBind).
Result<void> check_source(std::string_view source, Access access, bool home_bind,
                          std::string_view field);

}  // namespace temenos
