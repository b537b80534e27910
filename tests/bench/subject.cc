#include "tests/bench/subject.h"

#include "base/try.h"
#include "temenos/policy_builder.h"

namespace temenos::bench {
namespace {

Result<Platform> platform_of(const std::string& name) {
  if (name.empty()) return Platform::kAuto;
  if (name == "kvm") return Platform::kKvm;
  if (name == "systrap") return Platform::kSystrap;
  if (name == "ptrace") return Platform::kPtrace;
  return fail(Code::kUsage, "no such platform: " + name, "kvm, systrap or ptrace");
}

Result<std::string> run(Box& box, const std::vector<std::string>& argv, int fd) {
  ExecRequest request;
  request.argv = argv;
  ExecIo io;
  io.stdout_fd = fd;
  auto result = TRY(box.exec(request, io));
  if (result.exit_code != 0) {
    return fail(Code::kInternal, argv[0] + " failed in the box: " + result.stderr_data,
                "see what it says");
  }
  return std::move(result.stdout_data);
}

}  // namespace

Result<std::shared_ptr<Host>> Host::open(const std::string& platform) {
  auto policy = TRY(
      Policy::Builder().network(NetworkMode::kNone).platform(TRY(platform_of(platform))).build());
  return std::make_shared<Host>(Host{TRY(BoxManager::open()), std::move(policy)});
}

Result<Subject> Subject::start(Host& host) { return Subject(TRY(host.manager.run(host.policy))); }

Result<std::string> Subject::exec(const std::vector<std::string>& argv) {
  return run(box_, argv, -1);
}

Result<void> Subject::exec_to(const std::vector<std::string>& argv, int fd) {
  TRY(run(box_, argv, fd));
  return {};
}

Result<void> Subject::write(std::string_view path, std::string_view data, unsigned mode) {
  WriteOptions options;
  options.mode = mode;
  return box_.write_file(path, data, options);
}

Result<std::string> Subject::read(std::string_view path, std::size_t max) {
  return box_.read_file(path, max);
}

Result<void> Subject::stop() {
  TRY(box_.stop());
  return {};
}

}  // namespace temenos::bench
