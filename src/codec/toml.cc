#include "codec/toml.h"

// toml++ 3.3 asserts, and in a release build assumes, two things that malformed text breaks: how a
// table header begins ("[="), and that no letter of U+00A1 to U+0499 stands outside a string. Its
// parser reports an error in both cases if it is let go on. So it is: no assertion and no
// assumption (hence no NDEBUG), and its unicode tables answer false where they say unreachable.
// policy_toml_fuzz found both and guards the rest.
#undef NDEBUG
#define TOML_ASSERT(condition) static_cast<void>(0)
#define TOML_HEADER_ONLY 1
#define TOML_EXCEPTIONS 0
#define TOML_ENABLE_FORMATTERS 0
#define TOML_MAX_NESTED_VALUES 32
#include <toml++/impl/forward_declarations.h>
#undef TOML_UNREACHABLE
#define TOML_UNREACHABLE return false
#include <toml++/impl/unicode.h>
#undef TOML_UNREACHABLE
#define TOML_UNREACHABLE __builtin_unreachable()
#include <toml++/toml.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/text.h"
#include "base/try.h"
#include "codec/field_path.h"
#include "codec/text_position.h"

namespace temenos {
namespace {

namespace json = boost::json;

// toml++ bounds the nesting of arrays and inline tables, but not of dotted keys (a.b.c.d = 1), and
// frees its tree by recursion. The dots between two separators bound the depth one key can add,
// whatever is quoted how, so this needs no tokeniser that could disagree with the parser's.
constexpr int kMaxDots = 64;

bool has_endless_key(std::string_view text) {
  int dots = 0;
  for (const char c : text) {
    if (c == '.') {
      if (++dots > kMaxDots) return true;
    } else if (c == '\n' || c == '=' || c == ',' || c == '[' || c == ']' || c == '{' || c == '}') {
      dots = 0;
    }
  }
  return false;
}

tl::unexpected<Error> too_deep(std::size_t max_depth) {
  return fail(Code::kInvalidArgument,
              "the TOML text nests deeper than " + std::to_string(max_depth) + " levels",
              "use fewer levels");
}

Result<json::value> convert(const toml::node& node, const std::string& path, std::size_t levels,
                            const TextLimits& limits) {
  if (const auto* text = node.as_string()) return json::value(text->get());
  if (const auto* number = node.as_integer()) return json::value(number->get());
  if (const auto* flag = node.as_boolean()) return json::value(flag->get());
  if (const auto* number = node.as_floating_point()) {
    if (std::isfinite(number->get())) return json::value(number->get());
    return fail(Code::kInvalidArgument, path + ": expected a finite number, got inf or nan",
                "write a number");
  }
  if (!node.is_array() && !node.is_table()) {
    return fail(Code::kInvalidArgument, path + ": dates and times are not used here",
                "write a number or a string in quotes");
  }
  if (levels == 0) return too_deep(limits.max_depth);
  if (const auto* array = node.as_array()) {
    json::array out;
    for (std::size_t i = 0; i < array->size(); ++i) {
      out.push_back(TRY(convert((*array)[i], field_path(path, i), levels - 1, limits)));
    }
    return out;
  }
  json::object out;
  for (const auto& [key, child] : *node.as_table()) {
    out[key.str()] = TRY(convert(child, field_path(path, key.str()), levels - 1, limits));
  }
  return out;
}

std::string toml_string(std::string_view text) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string out = "\"";
  int dots = 0;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    // Escaped beyond half the bound, so that no text we write is refused by has_endless_key.
    const bool dot = c == '.' && ++dots > kMaxDots / 2;
#ifdef TEMENOS_PLANT_POLICY_TOML
    if (c == '"') {
#else
    if (c == '"' || c == '\\') {
#endif
      out += '\\';
      out += c;
    } else if (byte < 0x20 || byte == 0x7f || dot) {
      out += "\\u00";
      out += kHex[byte >> 4];
      out += kHex[byte & 15];
    } else {
      out += c;
    }
  }
  return out + '"';
}

class Writer {
 public:
  Result<std::string> document(const json::object& root) {
    for (const auto& [name, value] : root) {
      if (!is_section(value)) TRY(assignment(name, value));
    }
    for (const auto& [name, value] : root) {
      if (const auto* table = value.if_object()) {
        TRY(section("[", name, *table, "]"));
      } else if (is_section(value)) {
        for (const auto& item : value.get_array()) {
          TRY(section("[[", name, item.get_object(), "]]"));
        }
      }
    }
    return std::move(out_);
  }

 private:
  static bool is_section(const json::value& value) {
    if (value.is_object()) return true;
    const auto* array = value.if_array();
    return array && !array->empty() &&
           std::all_of(array->begin(), array->end(), [](const auto& v) { return v.is_object(); });
  }

  Result<void> section(std::string_view open, std::string_view name, const json::object& table,
                       std::string_view close) {
    out_ += out_.empty() ? "" : "\n";
    out_ += open;
    TRY(key(name));
    out_ += close;
    out_ += '\n';
    for (const auto& [field, value] : table) TRY(assignment(field, value));
    return {};
  }

  Result<void> assignment(std::string_view name, const json::value& value) {
    TRY(member(name, value));
    out_ += '\n';
    return {};
  }

  Result<void> member(std::string_view name, const json::value& value) {
    TRY(key(name));
    out_ += " = ";
    return inline_value(value);
  }

  Result<void> inline_value(const json::value& value) {
    switch (value.kind()) {
      case json::kind::string:
        return string(value.get_string());
      case json::kind::bool_:
        out_ += value.get_bool() ? "true" : "false";
        return {};
      case json::kind::int64:
        out_ += std::to_string(value.get_int64());
        return {};
      case json::kind::double_:
        return number(value.get_double());
      case json::kind::null:
      case json::kind::uint64:
        break;
      case json::kind::array: {
        std::string_view separator = "[";
        for (const auto& item : value.get_array()) {
          out_ += separator;
          TRY(inline_value(item));
          separator = ", ";
        }
        out_ += value.get_array().empty() ? "[]" : "]";
        return {};
      }
      case json::kind::object: {
        std::string_view separator = "{ ";
        for (const auto& [name, item] : value.get_object()) {
          out_ += separator;
          TRY(member(name, item));
          separator = ", ";
        }
        out_ += value.get_object().empty() ? "{}" : " }";
        return {};
      }
    }
    return fail(Code::kInvalidArgument, "TOML has no way to write this value", "use JSON");
  }

  Result<void> number(double value) {
    char text[64];
    const auto end = std::to_chars(text, text + sizeof text, value).ptr;
    const std::string_view digits(text, static_cast<std::size_t>(end - text));
    if (!std::isfinite(value)) {
      return fail(Code::kInvalidArgument, "inf and nan are not written", "use a finite number");
    }
    out_ += digits;
    if (digits.find_first_of(".e") == digits.npos) out_ += ".0";
    return {};
  }

  Result<void> string(std::string_view text) {
    if (!is_valid_utf8(text)) {
      return fail(Code::kInvalidArgument, in_quotes(text) + " is not valid UTF-8",
                  "use UTF-8 text");
    }
    out_ += toml_string(text);
    return {};
  }

  Result<void> key(std::string_view name) {
    const bool bare =
        !name.empty() && name.find_first_not_of("abcdefghijklmnopqrstuvwxyz_") == name.npos;
    if (!bare) return string(name);
    out_ += name;
    return {};
  }

  std::string out_;
};

}  // namespace

Result<json::value> parse_toml(std::string_view text, const TextLimits& limits) {
  if (text.size() > limits.max_bytes) {
    return fail(Code::kInvalidArgument,
                "the TOML text is longer than " + std::to_string(limits.max_bytes) + " bytes",
                "make it shorter");
  }
  if (has_endless_key(text)) {
    return fail(
        Code::kInvalidArgument,
        "a key or value of the TOML text has more than " + std::to_string(kMaxDots) + " dots",
        "use fewer levels; in a string, write \\u002e for some of the dots");
  }
  const toml::parse_result parsed = toml::parse(text);
  if (!parsed) {
    const toml::parse_error& error = parsed.error();
    const auto& at = error.source().begin;
    return fail(Code::kInvalidArgument,
                "not valid TOML at " + text_position(at.line, at.column) + " (" +
                    std::string(error.description()) + ")",
                "correct the text there");
  }
  return convert(parsed.table(), "", limits.max_depth, limits);
}

Result<std::string> serialize_toml(const json::object& root) { return Writer().document(root); }

}  // namespace temenos
