// What a program that uses the library does, as a process of its own that tests can kill:
//   box_tool create|start|stop|remove NAME | list
//   box_tool exec NAME COMMAND...     starts the box when it is stopped
// XDG_DATA_HOME says where; TEMENOS_PLATFORM which platform (systrap). Prints what it did on
// stdout, errors as the CLI does on stderr with status 125.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/text.h"
#include "base/try.h"
#include "box/box_store.h"
#include "temenos/policy_builder.h"

namespace temenos {
namespace {

using box::BoxHandle;
using box::BoxStore;

const char* platform() {
  const char* name = std::getenv("TEMENOS_PLATFORM");
  return name != nullptr ? name : "systrap";
}

box::StartOptions start_options(const box::HostDirs& dirs) {
  box::StartOptions options;
  options.runsc = dirs.libexec + "/runsc";
  options.platform = platform();
  return options;
}

// The policy's writable directories, for tests of what is shared: WRITE=DIR.
Result<Policy> policy() {
  Policy::Builder builder;
  builder.network(NetworkMode::kNone);
  if (const char* write = std::getenv("WRITE")) builder.write(write);
  return builder.build();
}

void say(const box::BoxEnd& end) {
  for (const auto& file : end.made) printf("made %s\n", escape(file.path).c_str());
  for (const auto& text : end.unseen) printf("unseen %s\n", text.c_str());
}

Result<int> exec(BoxHandle box, const box::HostDirs& dirs, char** words) {
  TRY(box.ensure_started(start_options(dirs)));
  say(box.found_at_start());
  ExecRequest request;
  for (; *words != nullptr; ++words) request.argv.emplace_back(*words);
  request.env = box.environment();
  request.cwd = box.default_directory();
  ExecIo io;
  io.stdout_fd = 1;
  io.stderr_fd = 2;
  const auto result = box.session().exec(request, io);
  if (!result) return tl::make_unexpected(box.explain(result.error()));
  return result->exit_code.value_or(255);
}

Result<int> run(int argc, char** argv) {
  const std::string verb = argc > 1 ? argv[1] : "";
  box::HostDirs dirs = TRY(box::host_dirs());
  dirs.libexec = TEMENOS_LIBEXEC;
  BoxStore manager = BoxStore::open(dirs);
  if (verb == "list") {
    for (const auto& info : TRY(manager.list())) {
      printf("%s %s %s\n", info.name.name.c_str(), info.id.c_str(), info.alive ? "alive" : "-");
    }
    return 0;
  }
  if (argc < 3) return fail(Code::kUsage, "no box named");
  const box::BoxName name{"", argv[2]};
  if (verb == "create") {
    (void)TRY(manager.create(name, "", TRY(policy())));
    return 0;
  }
  if (verb == "remove") {
    say(TRY(manager.remove(name)));
    return 0;
  }
  BoxHandle box = TRY(manager.find(name));
  if (verb == "exec") return exec(std::move(box), dirs, argv + 3);
  if (verb == "start") {
    TRY(box.ensure_started(start_options(dirs)));
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
