#include "tests/bench/subject.h"

#include "base/try.h"
#include "temenos/allow/host_network.h"
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
  const Platform chosen = TRY(platform_of(platform));
  auto policy = TRY(Policy::Builder().network(NetworkMode::kNone).platform(chosen).build());
  auto with_host_network =
      TRY(Policy::Builder().network_host(allow::HostNetwork{}).platform(chosen).build());
  return std::make_shared<Host>(
      Host{TRY(BoxManager::open()), std::move(policy), std::move(with_host_network), chosen});
}

Result<Policy> Host::filtered(std::uint16_t port) const {
  return Policy::Builder()
      .network(NetworkMode::kFiltered)
      .allow_host("127.0.0.1:" + std::to_string(port))
      .platform(platform)
      .build();
}

Result<Subject> Subject::start(Host& host, const Policy& policy) {
  return Subject(TRY(host.manager.run(policy)));
}

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
