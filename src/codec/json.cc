#include "codec/json.h"

#include <boost/json/basic_parser_impl.hpp>
#include <boost/json/serialize.hpp>
#include <boost/json/value_stack.hpp>
#include <cmath>
#include <set>
#include <vector>

#include "codec/field_path.h"
#include "codec/text_position.h"

namespace temenos {
namespace {

namespace json = boost::json;

// Builds the tree as Boost's own handler does, and keeps the keys of every open object.
struct Handler {
  static constexpr std::size_t max_object_size = json::object::max_size();
  static constexpr std::size_t max_array_size = json::array::max_size();
  static constexpr std::size_t max_key_size = json::string::max_size();
  static constexpr std::size_t max_string_size = json::string::max_size();
  using Ec = json::error_code;

  struct Level {
    bool is_object = false;
    std::set<std::string, std::less<>> keys;
    std::string key;
    std::size_t index = 0;
  };

  json::value_stack stack;
  std::vector<Level> levels;
  std::string partial_key;
  std::string duplicate;  // path of the first key seen twice

  bool open(bool is_object) {
    levels.push_back({.is_object = is_object});
    return true;
  }
  bool value_done() {
    if (!levels.empty() && !levels.back().is_object) ++levels.back().index;
    return true;
  }
  bool close() {
    levels.pop_back();
    return value_done();
  }
  std::string path() const {
    std::string out;
    for (const Level& level : levels) {
      out = level.is_object ? field_path(out, level.key) : field_path(out, level.index);
    }
    return out;
  }

  bool on_document_begin(Ec&) { return true; }
  bool on_document_end(Ec&) { return true; }
  bool on_object_begin(Ec&) { return open(true); }
  bool on_object_end(std::size_t n, Ec&) {
    stack.push_object(n);
    return close();
  }
  bool on_array_begin(Ec&) { return open(false); }
  bool on_array_end(std::size_t n, Ec&) {
    stack.push_array(n);
    return close();
  }
  bool on_key_part(json::string_view s, std::size_t, Ec&) {
    partial_key.append(s.data(), s.size());
    stack.push_chars(s);
    return true;
  }
  bool on_key(json::string_view s, std::size_t, Ec& ec) {
    partial_key.append(s.data(), s.size());
    Level& level = levels.back();
    level.key = std::move(partial_key);
    partial_key.clear();
    if (!level.keys.insert(level.key).second) {
      duplicate = path();
      ec = json::error::syntax;
      return false;
    }
    stack.push_key(s);
    return true;
  }
  bool on_string_part(json::string_view s, std::size_t, Ec&) {
    stack.push_chars(s);
    return true;
  }
  bool on_string(json::string_view s, std::size_t, Ec&) {
    stack.push_string(s);
    return value_done();
  }
  bool on_number_part(json::string_view, Ec&) { return true; }
  bool on_int64(std::int64_t i, json::string_view, Ec&) {
    stack.push_int64(i);
    return value_done();
  }
  bool on_uint64(std::uint64_t u, json::string_view, Ec&) {
    stack.push_uint64(u);
    return value_done();
  }
  bool on_double(double d, json::string_view, Ec& ec) {
    if (!std::isfinite(d)) {
      ec = json::error::exponent_overflow;
      return false;
    }
    stack.push_double(d);
    return value_done();
  }
  bool on_bool(bool b, Ec&) {
    stack.push_bool(b);
    return value_done();
  }
  bool on_null(Ec&) {
    stack.push_null();
    return value_done();
  }
  bool on_comment_part(json::string_view, Ec&) { return true; }
  bool on_comment(json::string_view, Ec&) { return true; }
};

}  // namespace

Result<json::value> parse_json(std::string_view text, const TextLimits& limits) {
  if (text.size() > limits.max_bytes) {
    return fail(Code::kInvalidArgument,
                "the JSON text is longer than " + std::to_string(limits.max_bytes) + " bytes",
                "make it shorter");
  }
  json::parse_options options;
  options.max_depth = limits.max_depth;
  json::basic_parser<Handler> parser(options);
  parser.handler().stack.reset();
  json::error_code ec;
  const std::size_t used = parser.write_some(false, text.data(), text.size(), ec);
  if (!parser.handler().duplicate.empty()) {
    return fail(Code::kInvalidArgument, parser.handler().duplicate + ": the key occurs twice",
                "keep one of the two");
  }
  if (!ec && used < text.size()) ec = json::error::extra_data;
  if (ec == json::error::too_deep) {
    return fail(Code::kInvalidArgument,
                "the JSON text nests deeper than " + std::to_string(limits.max_depth) + " levels",
                "use fewer levels");
  }
  if (ec) {
    return fail(Code::kInvalidArgument,
                "not valid JSON at " + text_position(text, used) + " (" + ec.message() + ")",
                "correct the text there");
  }
  return parser.handler().stack.release();
}

std::string serialize_json(const json::value& value) { return json::serialize(value); }

}  // namespace temenos
