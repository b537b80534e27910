// How a field is named in an error: mounts[1].target, env["a b"]. Names may be hostile: what is not
// a plain word is quoted, what is long is cut. Error::to_string escapes control bytes.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace temenos {

// Member `name`, or element `index`, of the value at `parent` (empty: the whole text).
std::string field_path(std::string_view parent, std::string_view name);
std::string field_path(std::string_view parent, std::size_t index);
// "text" in quotes and cut to about 80 bytes, at a UTF-8 boundary.
std::string in_quotes(std::string_view text);

}  // namespace temenos
