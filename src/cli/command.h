// The subcommands of temenos: each registers itself with the parser and leaves the function to run.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "temenos/error.h"

namespace CLI {
class App;
}

namespace temenos::cli {

// What main() knows and the parser does not see.
struct Invocation {
  std::vector<std::string> command;  // what stands after "--"
  bool has_separator = false;
};

// Runs a subcommand; its value is the exit status of the program.
using Action = std::function<Result<int>()>;

// Each adds one subcommand. `chosen` is set when it is the one on the command line; `invocation`
// outlives both.
void add_run(CLI::App& app, const Invocation& invocation, Action& chosen);
void add_doctor(CLI::App& app, Action& chosen);
void add_selftest(CLI::App& app, Action& chosen);
void add_version(CLI::App& app, Action& chosen);

// "temenos: text" on stderr, one line.
void warn(const std::string& text);

}  // namespace temenos::cli
