// temenos: the command line. Parses, runs one subcommand, turns its error into one line and an exit
// status.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <set>

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

// The commands of the plan: better than "not expected".
bool is_planned(const std::string& word) {
  static const std::set<std::string> kPlanned = {
      "create",  "exec", "shell", "ls",      "inspect", "start",     "stop",
      "rm",      "jobs", "logs",  "wait",    "kill",    "cp",        "forward",
      "audit",   "diff", "apply", "discard", "export",  "snapshot",  "snapshots",
      "restore", "fork", "net",   "image",   "claude",  "codex",     "opencode",
      "gemini",  "jail", "mcp",   "serve",   "trust",   "completion"};
  return kPlanned.contains(word);
}

// CLI11's errors in our words.
int parse_error(const CLI::App& app, const CLI::ParseError& error, const std::string& first,
                const Invocation& invocation) {
  if (app.get_subcommands().empty() && is_planned(first)) {
    return usage_error("'" + first + "' is not built yet", "use 'temenos run'");
  }
  if (app.get_subcommands().empty() && !first.empty() && first[0] != '-') {
    return usage_error("no such command '" + first + "'", "see 'temenos --help'");
  }
  std::string command = "temenos";
  for (const auto* chosen : app.get_subcommands()) command += " " + chosen->get_name();
  if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr && command == "temenos run" &&
      !invocation.has_separator) {
    return usage_error("there is no '--' before the command, or a flag is unknown",
                       "write it like: temenos run --no-net -- ls -la; see 'temenos run --help'");
  }
  if (dynamic_cast<const CLI::ConversionError*>(&error) != nullptr) {
    std::string text = error.what();
    constexpr std::string_view kPrefix = "Could not convert: ";
    if (text.starts_with(kPrefix)) text.erase(0, kPrefix.size());
    return usage_error(text + " is not a number",
                       "give a plain number; see '" + command + " --help'");
  }
  return usage_error(error.what(), "see '" + command + " --help'");
}

int run(int argc, char** argv) {
  signal(SIGPIPE, SIG_IGN);  // a reader that has gone is an error of write(2), not our end
  signal(SIGCHLD, SIG_DFL);  // ignored by whoever started us, no child could be waited for
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
  const std::string first = words.empty() ? "" : words[0];
  if (first == "help") words = {"--help"};
  std::reverse(words.begin(), words.end());  // CLI11 takes them from the back
  try {
    app.parse(words);
  } catch (const CLI::Success& done) {
    return app.exit(done);  // --help, --version
  } catch (const CLI::ParseError& error) {
    return parse_error(app, error, first, invocation);
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
