// Reads one object of a parsed text strictly: a field has one type and one range, and a field that
// nobody asked for is an error. Every error names the field by its path and says what was expected.
// Usage: of(), then the getters, then finish().
//
// Thread-safety: none. Ownership: borrows the value, which must outlive the reader.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "codec/json.h"

namespace temenos {

// kInvalidArgument: "PATH: expected EXPECTED, got GOT". `got` is text the user wrote.
tl::unexpected<Error> bad_field(std::string_view path, std::string_view expected,
                                std::string_view got, std::string hint);
// The same for a value of the wrong type.
tl::unexpected<Error> wrong_type(std::string_view path, std::string_view expected,
                                 const boost::json::value& got);
// `value` as a string, or an Error that names `path`.
Result<std::string> string_at(const boost::json::value& value, std::string_view path);

class ObjectReader {
 public:
  // `path` names the object in errors; empty for the whole text.
  static Result<ObjectReader> of(const boost::json::value& value, std::string path);

  // nullopt or null pointer: the field is not there. A JSON null is a wrong type, not absence.
  Result<std::optional<std::string>> optional_string(std::string_view name);
  Result<std::optional<bool>> optional_bool(std::string_view name);
  // Whole numbers of 64 bits only (not 1e3, not 2.0); ranges are the caller's.
  Result<std::optional<std::int64_t>> optional_int(std::string_view name);
  Result<std::optional<double>> optional_number(std::string_view name);
  Result<const boost::json::array*> optional_array(std::string_view name, std::size_t max_size);
  Result<const boost::json::value*> optional_object(std::string_view name);
  Result<std::string> string(std::string_view name);
  Result<std::int64_t> integer(std::string_view name);

  // The path of a member, for errors of the caller's own.
  std::string path(std::string_view name) const;
  // Rejects the fields nobody asked for.
  Result<void> finish() const;

 private:
  ObjectReader(const boost::json::object& object, std::string path)
      : object_(&object), path_(std::move(path)) {}
  const boost::json::value* find(std::string_view name);
  tl::unexpected<Error> missing(std::string_view name, std::string_view expected) const;

  const boost::json::object* object_;
  std::string path_;
  std::vector<std::string_view> known_;  // asked for, so allowed; the callers' literals
};

}  // namespace temenos
