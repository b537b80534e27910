#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <climits>
#include <cmath>
#include <cstdio>

#include "base/text.h"
#include "base/try.h"
#include "box/box_handle.h"
#include "box/exec_result_json.h"
#include "cli/box_flags.h"
#include "cli/command.h"
#include "cli/signals.h"
#include "cli/terminal.h"
#include "codec/json.h"
#include "temenos/box_manager.h"

namespace temenos::cli {
namespace {

constexpr int kTimedOutStatus = 124;
constexpr double kMaxTimeoutSeconds = 4'000'000;  // a 32-bit number of milliseconds

struct ExecFlags {
  bool stdin_open = false;
  bool tty = false;
  std::string cwd;
  double timeout = 0;
  bool json = false;
};

class RunHelp : public CLI::Formatter {
 public:
  std::string make_usage(const CLI::App*, std::string) const override {
    return "Usage: temenos run [box flags] [command flags] -- COMMAND...\n";
  }
};

Result<Box> start_box(const BoxFlags& flags, const Policy& policy, int cancel) {
  BoxManagerOptions options;
  options.cancel_fd = cancel;
  options.progress = [](std::string_view text) {
    if (isatty(2)) warn(std::string(text));
  };
  auto manager = TRY(BoxManager::open(std::move(options)));
  const std::string project = TRY(project_for(flags));
  char path[PATH_MAX];
  // It is in the project: that was found from here.
  return manager.run(policy, project, getcwd(path, sizeof path) != nullptr ? path : "");
}

// Where there is no result, stdout is still one JSON value. `end_reason`: empty, or why the box
// ended.
void print_json(const Error& error, std::string_view end_reason = {}) {
  boost::json::object text{
      {"code", code_name(error.code)}, {"what", error.to_string()}, {"hint", error.hint}};
  if (!end_reason.empty()) text["end_reason"] = end_reason;
  puts(serialize_json(boost::json::object{{"error", std::move(text)}}).c_str());
}

// Ends the box and says what it left for host programs to obey. On every way out of run().
Result<void> finish(Box& box) {
  const auto end = TRY(box.stop());
  for (const auto& file : end.made) {
    warn("the box made " + escape(file.path) + ", which host programs obey by themselves (" +
         escape(file.reason) + "): look at it before you work in that directory");
  }
  for (const auto& text : end.indexes) warn(text);
  for (const auto& text : end.unseen) {
    warn(text + ": the box may have left files there that host programs obey by themselves");
  }
  return {};
}

int status_of(const ExecResult& result) {
  if (result.timed_out) return kTimedOutStatus;
  if (result.exit_code) return *result.exit_code;
  int number = 1;
  while (number < SIGRTMAX && signal_name(number) != result.signal) ++number;
  return 128 + number;
}

// Who waited for a minute of retries is to know why.
void say_denials(const std::vector<Denial>& denials) {
  constexpr std::size_t kShown = 5;
  for (std::size_t i = 0; i < std::min(denials.size(), kShown); ++i) {
    warn("refused: " + escape(denials[i].target) + " (" + escape(denials[i].hint) + ")");
  }
  if (denials.size() > kShown) {
    warn("and " + std::to_string(denials.size() - kShown) + " others: --json has them");
  }
}

Result<int> run(const BoxFlags& box_flags, const ExecFlags& exec_flags,
                const Invocation& invocation) {
  if (!invocation.has_separator || invocation.command.empty()) {
    return fail(Code::kUsage, "no command to run", "put it after '--': temenos run --no-net -- ls");
  }
  if (exec_flags.tty) TRY(check_terminal_flags(exec_flags.stdin_open, exec_flags.json));
  if (!(exec_flags.timeout >= 0 && exec_flags.timeout <= kMaxTimeoutSeconds)) {
    return fail(Code::kUsage, "--timeout is not a number of seconds from 0 to 4000000",
                "give seconds");
  }
  const Policy policy = TRY(policy_from_flags(box_flags));
  // Before the box starts: a Ctrl-C during the start must still clean up.
  UniqueFd signals;
  TRY(take_signals(signals, false));
  auto started = start_box(box_flags, policy, signals.get());
  if (!started) {
    const int number = waiting_signal(signals.get());
    if (number == 0) return tl::make_unexpected(std::move(started).error());
    warn("interrupted by " + signal_name(number) + ": the box was not started: start it again");
    return 128 + number;
  }
  Box& box = *started;
  if (box.default_directory() == box::kBoxHome && !box_flags.no_project && isatty(2)) {
    warn(
        "no git repository here, so this directory is not in the box: --write . or --read . mounts "
        "it");
  }
  std::size_t warned = 0;
  const auto say_warnings = [&box, &warned] {
    for (; warned < box.warnings().size(); ++warned) warn("warning: " + box.warnings()[warned]);
  };
  say_warnings();

  ExecRequest request;
  request.argv = invocation.command;
  request.env =
      exec_flags.tty ? box.environment(terminal_variables(policy->env)) : box.environment();
  request.cwd = exec_flags.cwd.starts_with('/') ? exec_flags.cwd
                : exec_flags.cwd.empty()        ? box.default_directory()
                                                : box.default_directory() + "/" + exec_flags.cwd;
  request.timeout = std::chrono::milliseconds(std::llround(std::ceil(exec_flags.timeout * 1000)));
  if (policy->limits.output_mb) {
    request.output_cap = static_cast<std::uint64_t>(*policy->limits.output_mb) << 20;
  }
  ExecIo io;
  if (exec_flags.stdin_open) io.stdin_fd = 0;
  if (!exec_flags.json) {
    io.stdout_fd = 1;
    io.stderr_fd = 2;
  }
  io.signal_fd = signals.get();
  auto result =
      exec_flags.tty ? exec_on_terminal(box, request, io, signals) : box.exec(request, io);
  say_warnings();
  if (!result) {
    TRY(finish(box));
    if (exec_flags.json) print_json(result.error(), box.end_reason());
    warn(result.error().to_string());
    return exec_failure_status(result.error());
  }
  if (exec_flags.json) printf("%s\n", serialize_json(to_json(*result)).c_str());
  if (result->truncated && !result->oom && !exec_flags.json) warn("output was cut short");
  if (!exec_flags.json) say_denials(result->denials);
  if (result->timed_out) {
    warn("timed out after " + std::to_string(result->duration.count()) +
         " ms: the command and all it started were ended");
  }
  if (result->oom) {
    warn(box.ended() ? box.ended()->to_string()
                     : "memory ran out while the command ran (" + result->oom_evidence + ")");
  }
  TRY(finish(box));
  return status_of(*result);
}

}  // namespace

void add_run(CLI::App& app, const Invocation& invocation, Action& chosen) {
  auto* command =
      app.add_subcommand("run", "Run a command in a fresh box; the box is gone afterwards");
  command->formatter(std::make_shared<RunHelp>());
  command->footer(
      "Inside a git repository the repository is mounted at its own path and is the working "
      "directory;\n"
      "what git, editors and shells would run from it by themselves is read-only. HOME in a box is "
      "/root,\n"
      "and empty. Values of --env stand in the process list; use --secret-file for secrets.");
  auto box_flags = std::make_shared<BoxFlags>();
  auto exec_flags = std::make_shared<ExecFlags>();
  add_box_flags(*command, *box_flags);
  constexpr char kGroup[] = "Command";
  command->add_flag("-i,--stdin", exec_flags->stdin_open, "Give the command this stdin")
      ->group(kGroup);
  command->add_flag("-t", exec_flags->tty, "Run it on a terminal of its own; with -i that is yours")
      ->group(kGroup);
  command
      ->add_option("--cwd", exec_flags->cwd,
                   "Working directory in the box; relative to the default one")
      ->group(kGroup)
      ->type_name("DIR");
  command->add_option("--timeout", exec_flags->timeout, "End it and all it started after so long")
      ->group(kGroup)
      ->type_name("SECONDS");
  command->add_flag("--json", exec_flags->json, "Print the result as one JSON value")
      ->group(kGroup);
  command->callback([box_flags, exec_flags, &invocation, &chosen] {
    chosen = [box_flags, exec_flags, &invocation] {
      auto status = run(*box_flags, *exec_flags, invocation);
      if (!status && exec_flags->json) print_json(status.error());
      return status;
    };
  });
}

}  // namespace temenos::cli
