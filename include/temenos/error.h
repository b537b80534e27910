// What went wrong, as a value. Every fallible call of temenos returns Result<T>; no exception
// crosses a module. An Error that a user can see carries a hint: what to do about it.
//
// Thread-safety: plain values. Ownership: owns its strings.
#pragma once

#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <vector>

namespace temenos {

// Closed: a new code needs a row in the table of src/base/error.cc (the compiler checks).
enum class Code {
  kUsage,            // the call itself is wrong: unknown flag, missing argument
  kInvalidArgument,  // a value is malformed or out of range; the text names the field
  kPolicyViolation,  // an attempt to widen a policy, or a dangerous choice that was not named
  kNotFound,         // a path, a box, a program that is not there
  kAlreadyExists,
  kPermissionDenied,
  kUnsupported,  // this host cannot do it: no user namespaces, too old runsc
  kNotBuilt,     // a named part of the product that does not exist yet
  kExhausted,    // disk, memory, descriptors
  kTimedOut,
  kBoxDied,   // the sandbox, its init or its session ended by itself
  kProtocol,  // the peer broke the protocol (for init: hostile until proven otherwise)
  kConflict,  // another live box or process holds it
  kIo,        // a system call failed where none should
  kInternal,  // a bug of ours that could still be reported
};

// Stable lower-case name ("policy_violation"), for JSON and logs.
std::string_view code_name(Code code);
// The exit status of the CLI for an error of this kind (2 for usage, else 125).
int exit_code(Code code);

struct Error {
  Code code = Code::kInternal;
  std::string what;                  // "cannot mount /usr"
  std::vector<std::string> context;  // outermost first: "starting the box"
  int sys_errno = 0;                 // errno of the failed call, 0 when there was none
  std::string hint;                  // what to do; empty only where no user can see it

  // "context: what: strerror: hint" on one line; control bytes are escaped.
  std::string to_string() const;
  Error&& with_context(std::string outer) &&;
  Error&& with_hint(std::string text) &&;
};

template <typename T>
using Result = tl::expected<T, Error>;

tl::unexpected<Error> fail(Code code, std::string what, std::string hint = {});
// An Error for a failed system call; `code` is derived from errno (ENOENT, EPERM, ENOSPC, ...).
tl::unexpected<Error> fail_errno(int err, std::string what, std::string hint = {});

}  // namespace temenos
