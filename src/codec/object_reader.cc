#include "codec/object_reader.h"

#include <algorithm>

#include "base/try.h"
#include "codec/field_path.h"

namespace temenos {
namespace {

namespace json = boost::json;

std::string_view type_name(const json::value& value) {
  switch (value.kind()) {
    case json::kind::null:
      return "null";
    case json::kind::bool_:
      return "true or false";
    case json::kind::int64:
    case json::kind::uint64:
    case json::kind::double_:
      return "a number";
    case json::kind::string:
      return "a string";
    case json::kind::array:
      return "a list";
    case json::kind::object:
      return "a table of fields";
  }
  return "something else";
}

std::string prefix(std::string_view path) {
  return path.empty() ? std::string() : std::string(path) + ": ";
}

}  // namespace

tl::unexpected<Error> bad_field(std::string_view path, std::string_view expected,
                                std::string_view got, std::string hint) {
  return fail(Code::kInvalidArgument,
              prefix(path) + "expected " + std::string(expected) + ", got " + in_quotes(got),
              std::move(hint));
}

tl::unexpected<Error> wrong_type(std::string_view path, std::string_view expected,
                                 const json::value& got) {
  return fail(
      Code::kInvalidArgument,
      prefix(path) + "expected " + std::string(expected) + ", got " + std::string(type_name(got)),
      "give it " + std::string(expected));
}

Result<std::string> string_at(const json::value& value, std::string_view path) {
  const auto* text = value.if_string();
  if (!text) return wrong_type(path, "a string", value);
  return std::string(text->data(), text->size());
}

Result<ObjectReader> ObjectReader::of(const json::value& value, std::string path) {
  const auto* object = value.if_object();
  if (!object) return wrong_type(path, "a table of fields", value);
  return ObjectReader(*object, std::move(path));
}

const json::value* ObjectReader::find(std::string_view name) {
  known_.push_back(name);
  return object_->if_contains(name);
}

std::string ObjectReader::path(std::string_view name) const { return field_path(path_, name); }

tl::unexpected<Error> ObjectReader::missing(std::string_view name,
                                            std::string_view expected) const {
  return fail(Code::kInvalidArgument, path(name) + ": missing, expected " + std::string(expected),
              "add the field " + std::string(name));
}

Result<std::optional<std::string>> ObjectReader::optional_string(std::string_view name) {
  const json::value* value = find(name);
  if (!value) return std::nullopt;
  return TRY(string_at(*value, path(name)));
}

Result<std::optional<bool>> ObjectReader::optional_bool(std::string_view name) {
  const json::value* value = find(name);
  if (!value) return std::nullopt;
  if (!value->is_bool()) return wrong_type(path(name), "true or false", *value);
  return value->get_bool();
}

Result<std::optional<std::int64_t>> ObjectReader::optional_int(std::string_view name) {
  const json::value* value = find(name);
  if (!value) return std::nullopt;
  if (value->is_uint64()) {
    return bad_field(path(name), "a whole number below 2^63", std::to_string(value->get_uint64()),
                     "use a smaller number");
  }
  if (!value->is_int64()) return wrong_type(path(name), "a whole number", *value);
  return value->get_int64();
}

Result<std::optional<double>> ObjectReader::optional_number(std::string_view name) {
  const json::value* value = find(name);
  if (!value) return std::nullopt;
  if (!value->is_number()) return wrong_type(path(name), "a number", *value);
  return value->to_number<double>();
}

Result<const json::array*> ObjectReader::optional_array(std::string_view name,
                                                        std::size_t max_size) {
  const json::value* value = find(name);
  if (!value) return nullptr;
  const auto* array = value->if_array();
  if (!array) return wrong_type(path(name), "a list", *value);
  if (array->size() > max_size) {
    const std::string expected = "at most " + std::to_string(max_size) + " entries";
    return fail(Code::kInvalidArgument,
                path(name) + ": expected " + expected + ", got " + std::to_string(array->size()),
                "shorten the list");
  }
  return array;
}

Result<const json::value*> ObjectReader::optional_object(std::string_view name) {
  const json::value* value = find(name);
  if (value && !value->is_object()) return wrong_type(path(name), "a table of fields", *value);
  return value;
}

Result<std::string> ObjectReader::string(std::string_view name) {
  auto value = TRY(optional_string(name));
  if (!value) return missing(name, "a string");
  return std::move(*value);
}

Result<std::int64_t> ObjectReader::integer(std::string_view name) {
  const auto value = TRY(optional_int(name));
  if (!value) return missing(name, "a whole number");
  return *value;
}

Result<void> ObjectReader::finish() const {
  for (const auto& member : *object_) {
    if (std::find(known_.begin(), known_.end(), std::string_view(member.key())) != known_.end()) {
      continue;
    }
    std::string hint = "the fields here are";
    std::string_view separator = " ";
    for (const std::string_view name : known_) {
      hint += std::string(separator) + std::string(name);
      separator = ", ";
    }
    return fail(Code::kInvalidArgument, path(std::string_view(member.key())) + ": unknown field",
                hint);
  }
  return {};
}

}  // namespace temenos
