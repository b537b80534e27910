// What a program that uses the library does, as a process of its own that tests can kill:
//   box_tool create|start|stop|remove NAME | list
//   box_tool exec NAME COMMAND...     starts the box when it is stopped
// XDG_DATA_HOME says where; TEMENOS_PLATFORM which platform (systrap). Prints what it did on
// stdout, errors as the CLI does on stderr with status 125.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "base/text.h"
#include "base/try.h"
#include "temenos/box_manager.h"
#include "temenos/policy_builder.h"

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
  return builder.build();
}

void say(const BoxEnd& end) {
  for (const auto& file : end.made) printf("made %s\n", escape(file.path).c_str());
  for (const auto& text : end.unseen) printf("unseen %s\n", text.c_str());
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
  if (verb == "create") {
    (void)TRY(manager.create(name, TRY(policy())));
    return 0;
  }
  if (verb == "remove") {
    say(TRY(manager.remove(name)));
    return 0;
  }
  Box box = TRY(manager.find(name));
  if (verb == "exec") return exec(std::move(box), argv + 3);
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
  fprintf(stderr, "box_tool: %s\n", status.error().to_string().c_str());
  return temenos::exit_code(status.error().code);
}
