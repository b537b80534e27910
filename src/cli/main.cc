// temenos: the command line. Parses, runs one subcommand, turns its error into one line and an exit
// status.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <cstdio>

#include "base/text.h"
#include "cli/command.h"

namespace temenos::cli {

void warn(const std::string& text) { fprintf(stderr, "temenos: %s\n", text.c_str()); }

namespace {

constexpr char kAbout[] =
    "temenos runs untrusted code in a box: a gVisor sandbox that cannot touch the host beyond its "
    "policy.";
constexpr char kFooter[] =
    "A first box:\n  temenos run --no-net -- python3 -c 'print(6*7)'\n"
    "Exit status: the command's own; 124 timed out; 125 temenos failed; 126 not executable; 127 "
    "not found;\n"
    "128+n ended by signal n; 2 wrong usage.";

int usage_error(const std::string& text, const std::string& hint) {
  warn(escape(text) + ": " + hint);
  return exit_code(Code::kUsage);
}

int run(int argc, char** argv) {
  signal(SIGPIPE, SIG_IGN);  // a reader that has gone is an error of write(2), not our end
  Invocation invocation;
  // The parser sees only what stands before "--": a command's flags are the command's.
  std::vector<std::string> words;
  for (int i = 1; i < argc; ++i) {
    if (!invocation.has_separator && std::string_view(argv[i]) == "--") {
      invocation.has_separator = true;
    } else {
      (invocation.has_separator ? invocation.command : words).emplace_back(argv[i]);
    }
  }
  CLI::App app(kAbout, "temenos");
  app.footer(kFooter);
  app.require_subcommand(0, 1);
  app.set_version_flag("--version", "temenos " TEMENOS_VERSION);
  Action action;
  add_run(app, invocation, action);
  add_doctor(app, action);
  add_selftest(app, action);
  add_version(app, action);
  std::reverse(words.begin(), words.end());  // CLI11 takes them from the back
  try {
    app.parse(words);
  } catch (const CLI::Success& done) {
    return app.exit(done);  // --help, --version
  } catch (const CLI::ParseError& error) {
    // The subcommand's own help when one was named.
    std::string command = "temenos";
    for (const auto* chosen : app.get_subcommands()) command += " " + chosen->get_name();
    return usage_error(error.what(), "see '" + command + " --help'");
  }
  if (!action) {
    fputs(app.help().c_str(), stdout);
    return 0;
  }
  const auto status = action();
  if (status) return *status;
  warn(status.error().to_string());
  return exit_code(status.error().code);
}

}  // namespace
}  // namespace temenos::cli

int main(int argc, char** argv) { return temenos::cli::run(argc, argv); }
