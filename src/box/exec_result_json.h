// The JSON form of an ExecResult: docs/cli.md. Output that is not valid UTF-8 comes as
// stdout_base64 or stderr_base64 in place of stdout or stderr, so nothing is ever replaced or lost.
#pragma once

#include <boost/json/object.hpp>

#include "temenos/exec_result.h"

namespace temenos {

boost::json::object to_json(const ExecResult& result);

}  // namespace temenos
