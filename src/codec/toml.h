// TOML text to the same value tree as JSON, and back, so that one reader serves both. Bounded like
// parse_json. Dates and times have no place in the tree and are refused, as are inf and nan.
//
// Thread-safety: pure functions.
#pragma once

#include "codec/json.h"

namespace temenos {

// The root is always an object. Errors name line and column, or the field.
Result<boost::json::value> parse_toml(std::string_view text, const TextLimits& limits = {});
// The root's objects become [tables] and its arrays of objects [[tables]]; what lies deeper is
// written inline. Fails for what TOML cannot say: null, numbers of 2^63 and more, bad UTF-8.
Result<std::string> serialize_toml(const boost::json::object& root);

}  // namespace temenos
