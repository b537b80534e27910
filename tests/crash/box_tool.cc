// What a program that uses the library does, as a process of its own that tests can kill:
//   box_tool create|start|stop|remove NAME | list
//   box_tool new NAME                 create and start
//   box_tool exec NAME COMMAND...     starts the box when it is stopped
//   box_tool execs NAME FILE          records (records.h) until the end of stdin, each written by a
//                                     command of its own
//   box_tool write NAME FILE STATE    the same by file operations, and STATE replaced with each
//   box_tool kill-init NAME MS        once the box lives, which may take so long
//   box_tool hold NAME                connects, prints "held", stays until the end of its stdin
//   box_tool later NAME COMMAND...    finds the box, prints "found", and executes at the end of its
//                                     stdin
//   box_tool allow|deny NAME ENTRY... prints the allowlist, and "note ..." for what is to be told
//   box_tool allowed NAME             prints it
// XDG_DATA_HOME says where; TEMENOS_PLATFORM which platform (systrap); ALLOW="ENTRY ..." makes
// boxes with a filtered network. Prints what it did on stdout, errors as the CLI does on stderr
// with status 125; "[no hint]" ends one that says no way out.
#include <poll.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string>
#include <thread>

#include "base/text.h"
#include "base/try.h"
#include "temenos/box_manager.h"
#include "temenos/policy_builder.h"
#include "tests/crash/records.h"

namespace temenos {
namespace {

// TEMENOS_PLATFORM; WRITE=DIR for tests of what is shared.
Result<Policy> policy() {
  Policy::Builder builder;
  builder.network(NetworkMode::kNone);
  const char* platform = std::getenv("TEMENOS_PLATFORM");
  builder.platform(platform != nullptr && std::string_view(platform) == "ptrace"
                       ? Platform::kPtrace
                       : Platform::kSystrap);
  if (const char* write = std::getenv("WRITE")) builder.write(write);
  if (const char* allow = std::getenv("ALLOW")) {
    builder.network(NetworkMode::kFiltered);
    std::istringstream entries(allow);
    for (std::string entry; entries >> entry;) builder.allow_host(entry);
  }
  return builder.build();
}

void say(const BoxEnd& end) {
  for (const auto& file : end.made) printf("made %s\n", escape(file.path).c_str());
  for (const auto& text : end.unseen) printf("unseen %s\n", text.c_str());
  fflush(stdout);
}

Result<int> exec(Box box, char** words) {
  TRY(box.start());
  say(box.found_at_start());
  ExecRequest request;
  for (; *words != nullptr; ++words) request.argv.emplace_back(*words);
  ExecIo io;
  io.stdout_fd = 1;
  io.stderr_fd = 2;
  return TRY(box.exec(request, io)).exit_code.value_or(255);
}

void wait_for_end_of_stdin() {
  char byte;
  while (read(0, &byte, 1) > 0) {
  }
}

Result<int> later(Box box, char** words) {
  printf("found\n");
  fflush(stdout);
  wait_for_end_of_stdin();
  return exec(std::move(box), words);
}

Result<int> edit(Box box, bool allow, char** words) {
  std::vector<std::string> entries;
  for (; *words != nullptr; ++words) entries.emplace_back(*words);
  const auto edited = TRY(allow ? box.allow_hosts(entries) : box.deny_hosts(entries));
  for (const auto& entry : edited.entries) printf("%s\n", entry.c_str());
  for (const auto& note : edited.notes) printf("note %s\n", note.c_str());
  return 0;
}

// Says that a write has returned, to a reader that must not miss it when we are killed next.
void say_returned(std::size_t n) {
  printf("%zu\n", n);
  fflush(stdout);
}

bool is_to_end() {
  pollfd fd{0, POLLIN, 0};
  return poll(&fd, 1, 0) != 0;
}

Result<int> write_by_execs(Box box, const std::string& file) {
  ExecRequest request;
  for (std::size_t n = 0; !is_to_end(); ++n) {
    request.argv = {"sh", "-c", "printf '%08d %0190d\\n' $1 $1 >>\"$2\"", "sh", std::to_string(n),
                    file};
    const auto result = TRY(box.exec(request));
    if (result.exit_code != 0) return fail(Code::kIo, "not written: " + result.stderr_data, "-");
    say_returned(n);
  }
  return 0;
}

Result<int> write_by_file_operations(Box box, const std::string& file, const std::string& state) {
  for (std::size_t n = 0; !is_to_end(); ++n) {
    TRY(box.write_file(file, testing::record(n), {.how = WriteOptions::How::kAppend}));
    TRY(box.write_file(state, testing::state(n)));
    say_returned(n);
  }
  return 0;
}

Result<int> kill_init(Box box, std::chrono::milliseconds patience) {
  const auto end = std::chrono::steady_clock::now() + patience;
  while (!box.is_alive()) {
    if (std::chrono::steady_clock::now() >= end) return fail(Code::kNotFound, "it does not live");
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  ExecRequest request;
  request.argv = {"sh", "-c", "kill -9 1; sleep 60"};
  const auto result = box.exec(request);
  if (result) return fail(Code::kInternal, "init lives on");
  printf("%s\n", result.error().to_string().c_str());
  return 0;
}

Result<int> hold(Box box) {
  TRY(box.start());
  printf("held\n");
  fflush(stdout);
  wait_for_end_of_stdin();
  return 0;
}

Result<int> run(int argc, char** argv) {
  const std::string verb = argc > 1 ? argv[1] : "";
  BoxManager manager = TRY(BoxManager::open());
  if (verb == "list") {
    for (const auto& info : TRY(manager.list())) {
      printf("%s %s %s\n", info.name.name.c_str(), info.id.c_str(), info.alive ? "alive" : "-");
    }
    return 0;
  }
  if (argc < 3) return fail(Code::kUsage, "no box named");
  const BoxName name{"", argv[2]};
  if (verb == "create" || verb == "new") {
    Box box = TRY(manager.create(name, TRY(policy())));
    if (verb == "new") TRY(box.start());
    return 0;
  }
  if (verb == "remove") {
    say(TRY(manager.remove(name)));
    return 0;
  }
  Box box = TRY(manager.find(name));
  if (verb == "later") return later(std::move(box), argv + 3);
  if (verb == "allow" || verb == "deny") return edit(std::move(box), verb == "allow", argv + 3);
  if (verb == "allowed") {
    for (const auto& entry : TRY(box.allowed_hosts())) printf("%s\n", entry.c_str());
    return 0;
  }
  if (verb == "exec") return exec(std::move(box), argv + 3);
  if (verb == "execs" && argc == 4) return write_by_execs(std::move(box), argv[3]);
  if (verb == "write" && argc == 5) {
    return write_by_file_operations(std::move(box), argv[3], argv[4]);
  }
  if (verb == "kill-init" && argc == 4) {
    return kill_init(std::move(box), std::chrono::milliseconds(atol(argv[3])));
  }
  if (verb == "hold") return hold(std::move(box));
  if (verb == "start") {
    TRY(box.start());
    say(box.found_at_start());
    return 0;
  }
  if (verb == "stop") {
    say(TRY(box.stop()));
    return 0;
  }
  return fail(Code::kUsage, "no such verb: " + verb);
}

}  // namespace
}  // namespace temenos

int main(int argc, char** argv) {
  const auto status = temenos::run(argc, argv);
  if (status) return *status;
  fprintf(stderr, "box_tool: %s%s\n", status.error().to_string().c_str(),
          status.error().hint.empty() ? " [no hint]" : "");
  return temenos::exit_code(status.error().code);
}
