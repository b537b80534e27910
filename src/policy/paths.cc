#include "policy/paths.h"

#include <algorithm>

#include "base/text.h"
#include "base/try.h"
#include "codec/field_path.h"
#include "codec/object_reader.h"

namespace temenos {
namespace {

constexpr std::size_t kMaxPath = 4095;      // PATH_MAX without the NUL
constexpr std::size_t kMaxComponent = 255;  // NAME_MAX

// Places of the box's own. Nothing is mounted on, in or above them.
constexpr std::string_view kReserved[] = {
    "/proc",  "/sys",   "/usr",    "/etc", "/bin",     "/sbin",     "/lib",
    "/lib32", "/lib64", "/libx32", "/dev", "/var/run", "/var/lock", "/run/temenos"};
// Nothing is mounted on these, but below them it may be.
constexpr std::string_view kReservedItself[] = {"/tmp", "/run", "/dev/shm"};

constexpr std::string_view kKernel[] = {"/proc", "/sys", "/dev"};
constexpr std::string_view kSystem[] = {"/usr", "/etc",   "/boot",  "/bin",    "/sbin",
                                        "/lib", "/lib32", "/lib64", "/libx32", "/run"};
// Ancestors of home directories, or one themselves.
constexpr std::string_view kHomes[] = {"/", "/home", "/root"};

template <std::size_t N>
bool any_above(const std::string_view (&list)[N], std::string_view path) {
  return std::any_of(std::begin(list), std::end(list),
                     [&](std::string_view outer) { return is_at_or_below(path, outer); });
}

}  // namespace

Result<std::string> normal_path(std::string_view text, std::string_view field) {
  if (text.empty() || text[0] != '/') {
    return bad_field(field, "an absolute path", text, "write the path from / on");
  }
  const auto is_control = [](char c) { return (c >= 0 && c < ' ') || c == 0x7f; };
  if (std::any_of(text.begin(), text.end(), is_control) || !is_valid_utf8(text)) {
    return bad_field(field, "a path of UTF-8 text without control bytes", text, "rename the file");
  }
  std::string out;
  for (const std::string& part : split(text, '/')) {
    if (part.empty() || part == ".") continue;
#ifndef TEMENOS_PLANT_POLICY_JSON
    if (part == "..") {
      return bad_field(field, "a path without \"..\"", text, "write where the path leads to");
    }
#endif
    if (part.size() > kMaxComponent) {
      return bad_field(field, "names of at most 255 bytes", part, "use a shorter path");
    }
    out += "/" + part;
  }
  if (out.size() > kMaxPath) {
    return bad_field(field, "a path of at most 4095 bytes", out, "use a shorter path");
  }
  return out.empty() ? "/" : out;
}

bool is_at_or_below(std::string_view inner, std::string_view outer) {
  if (outer == "/") return true;
  return inner.starts_with(outer) && (inner.size() == outer.size() || inner[outer.size()] == '/');
}

Result<void> check_target(std::string_view target, std::string_view field) {
  const auto taken = [&](std::string_view reserved) {
    return bad_field(field, "a place of your own in the box", target,
                     std::string(reserved) +
                         " belongs to the box itself; choose a target elsewhere, as /mnt/NAME");
  };
  if (target == "/") return taken("/");
  for (const std::string_view reserved : kReservedItself) {
    if (target == reserved) return taken(reserved);
  }
  if (is_at_or_below(target, "/dev/shm")) return {};
  for (const std::string_view reserved : kReserved) {
    if (is_at_or_below(target, reserved) || is_at_or_below(reserved, target))
      return taken(reserved);
  }
  return {};
}

Result<void> check_source(std::string_view source, Access access, bool home_bind,
                          std::string_view field) {
  const std::string shown = std::string(field) + ": " + in_quotes(source);
  if (any_above(kKernel, source)) {
    return fail(Code::kPolicyViolation, shown + " is the kernel's and is never bound into a box",
                "the box has its own /proc, /sys and /dev");
  }
  const bool write = access == Access::kWrite;
  if (write && (source == "/" || any_above(kSystem, source))) {
    return fail(Code::kPolicyViolation,
                shown + " is a system directory and never writable in a box",
                "bind it for reading, or copy what is needed");
  }
  if (home_bind) return {};
  const bool home = std::find(std::begin(kHomes), std::end(kHomes), source) != std::end(kHomes);
  if (home || (write && std::count(source.begin(), source.end(), '/') == 1)) {
    return fail(Code::kPolicyViolation,
                shown + (home ? " holds home directories" : " is shared by the whole system"),
                "bind a directory inside it, or name the danger: \"home-bind\" in allow_danger "
                "(C++: allow::HomeBind)");
  }
  return {};
}

}  // namespace temenos
