#include "temenos/error.h"

#include <cerrno>
#include <cstring>

#include "base/text.h"

namespace temenos {
namespace {

struct Row {
  std::string_view name;
  int exit;
};

Row row(Code code) {
  switch (code) {
    case Code::kUsage:
      return {"usage", 2};
    case Code::kInvalidArgument:
      return {"invalid_argument", 125};
    case Code::kPolicyViolation:
      return {"policy_violation", 125};
    case Code::kNotFound:
      return {"not_found", 125};
    case Code::kAlreadyExists:
      return {"already_exists", 125};
    case Code::kPermissionDenied:
      return {"permission_denied", 125};
    case Code::kUnsupported:
      return {"unsupported", 125};
    case Code::kNotBuilt:
      return {"not_built", 125};
    case Code::kExhausted:
      return {"exhausted", 125};
    case Code::kTimedOut:
      return {"timed_out", 125};
    case Code::kBoxDied:
      return {"box_died", 125};
    case Code::kProtocol:
      return {"protocol", 125};
    case Code::kConflict:
      return {"conflict", 125};
    case Code::kIo:
      return {"io", 125};
    case Code::kInternal:
      return {"internal", 125};
  }
  return {"internal", 125};
}

Code code_of_errno(int err) {
  switch (err) {
    case ENOENT:
    case ENOTDIR:
      return Code::kNotFound;
    case EEXIST:
      return Code::kAlreadyExists;
    case EPERM:
    case EACCES:
    case EROFS:
      return Code::kPermissionDenied;
    case ENOSYS:
    case EOPNOTSUPP:
      return Code::kUnsupported;
    case ENOSPC:
    case EDQUOT:
    case ENOMEM:
    case EMFILE:
    case ENFILE:
      return Code::kExhausted;
    case ETIMEDOUT:
      return Code::kTimedOut;
    case EINVAL:
    case ELOOP:
    case ENAMETOOLONG:
      return Code::kInvalidArgument;
    default:
      return Code::kIo;
  }
}

}  // namespace

std::string_view code_name(Code code) { return row(code).name; }
int exit_code(Code code) { return row(code).exit; }

std::string Error::to_string() const {
  std::string out;
  auto add = [&out](std::string_view part) {
    if (part.empty()) return;
    if (!out.empty()) out += ": ";
    out += escape(part);
  };
  for (const auto& part : context) add(part);
  add(what);
  if (sys_errno != 0) add(strerror(sys_errno));
  add(hint);
  return out;
}

Error&& Error::with_context(std::string outer) && {
  context.insert(context.begin(), std::move(outer));
  return std::move(*this);
}

Error&& Error::with_hint(std::string text) && {
  if (hint.empty()) hint = std::move(text);
  return std::move(*this);
}

tl::unexpected<Error> fail(Code code, std::string what, std::string hint) {
  Error error;
  error.code = code;
  error.what = std::move(what);
  error.hint = std::move(hint);
  return tl::unexpected<Error>(std::move(error));
}

tl::unexpected<Error> fail_errno(int err, std::string what, std::string hint) {
  Error error;
  error.code = code_of_errno(err);
  error.what = std::move(what);
  error.sys_errno = err;
  error.hint = std::move(hint);
  return tl::unexpected<Error>(std::move(error));
}

}  // namespace temenos
