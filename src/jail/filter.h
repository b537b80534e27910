// Seccomp rules as data, and the one function that makes a filter of them (libseccomp).
#pragma once

#include <seccomp.h>

#include <array>
#include <cstdint>
#include <span>

#include "base/unique_fd.h"
#include "temenos/error.h"

namespace temenos::jail {

struct Rule {
  std::uint32_t action;
  int syscall;
  unsigned argument_count = 0;
  std::array<scmp_arg_cmp, 3> arguments{};
};

// Argument `index` has exactly the bits `value` among `mask`.
constexpr scmp_arg_cmp masked(unsigned index, std::uint64_t mask, std::uint64_t value) {
  return {index, SCMP_CMP_MASKED_EQ, mask, value};
}
constexpr scmp_arg_cmp equals(unsigned index, std::uint64_t value) {
  return {index, SCMP_CMP_EQ, value, 0};
}
constexpr scmp_arg_cmp above(unsigned index, std::uint64_t value) {
  return {index, SCMP_CMP_GT, value, 0};
}
constexpr Rule rule(std::uint32_t action, int syscall) { return {action, syscall}; }
constexpr Rule rule(std::uint32_t action, int syscall, scmp_arg_cmp a) {
  return {action, syscall, 1, {a}};
}
constexpr Rule rule(std::uint32_t action, int syscall, scmp_arg_cmp a, scmp_arg_cmp b) {
  return {action, syscall, 2, {a, b}};
}
constexpr Rule rule(std::uint32_t action, int syscall, scmp_arg_cmp a, scmp_arg_cmp b,
                    scmp_arg_cmp c) {
  return {action, syscall, 3, {a, b, c}};
}

// Sets no_new_privs and loads the filter into the calling process, which must have one thread. The
// result is the notification listener when a rule has SCMP_ACT_NOTIFY, else empty.
Result<UniqueFd> load_filter(std::uint32_t default_action, std::uint32_t foreign_arch_action,
                             std::span<const Rule> rules);

}  // namespace temenos::jail
