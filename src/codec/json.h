// JSON text to a value tree and back. The one place that parses JSON, and the one header that
// brings Boost.JSON in. For text that others wrote: size and depth are bounded before anything is
// built, invalid UTF-8 and duplicate keys are errors (a parser that keeps the last of two keys lets
// a reviewer read one value and the program another). Fields are read by object_reader.h.
//
// Thread-safety: pure functions.
#pragma once

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/value.hpp>
#include <cstddef>
#include <string>
#include <string_view>

#include "temenos/error.h"

namespace temenos {

struct TextLimits {
  std::size_t max_bytes = std::size_t{1} << 20;
  std::size_t max_depth = 16;  // arrays and objects inside each other
};

// Errors are kInvalidArgument and name the place: line and column, or the path of a duplicate key.
Result<boost::json::value> parse_json(std::string_view text, const TextLimits& limits = {});
// Members keep their order. Strings must be valid UTF-8, doubles finite.
std::string serialize_json(const boost::json::value& value);

}  // namespace temenos
