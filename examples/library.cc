// A box with a name, used from C++: a command, a job, a file. Link with the CMake target
// temenos_box; the programs of temenos are looked for in ../libexec/temenos beside this one.
#include <cstdio>

#include "temenos/box_manager.h"
#include "temenos/policy_builder.h"

using namespace temenos;

namespace {

int failed(const Error& error) {
  std::fprintf(stderr, "%s\n", error.to_string().c_str());
  return 1;
}

}  // namespace

int main() {
  auto manager = BoxManager::open();
  if (!manager) return failed(manager.error());
  const auto policy = Policy::Builder().network(NetworkMode::kNone).build();
  if (!policy) return failed(policy.error());

  const BoxName name{"", "example"};
  auto box = manager->create(name, *policy);
  if (!box) return failed(box.error());

  // The first call starts the box.
  ExecRequest hello;
  hello.argv = {"sh", "-c", "echo hello from $(uname -n)"};
  const auto result = box->exec(hello);
  if (!result) return failed(result.error());
  std::printf("%s", result->stdout_data.c_str());

  // A job goes on when this program ends, and so does the box.
  ExecRequest work;
  work.argv = {"sh", "-c", "for i in 1 2 3; do echo $i; sleep 0.1; done; echo done >~/result"};
  const auto job = box->start_job(work);
  if (!job) return failed(job.error());
  const auto over = box->wait_job(*job, std::chrono::seconds(60));
  if (!over) return failed(over.error());
  const auto file = box->read_file("/root/result", 1000);
  if (!file) return failed(file.error());
  std::printf("job %u: %s", *job, file->c_str());

  // Its files would stay until it is removed.
  const auto end = manager->remove(name);
  if (!end) return failed(end.error());
  return 0;
}
