#include "temenos/box_manager.h"

#include "base/try.h"
#include "box/box_impl.h"
#include "box/box_store.h"
#include "box/platform_trial.h"

namespace temenos {

Result<box::StartOptions> BoxManager::Impl::start_options(const Policy& policy) {
  // Before a platform is tried, which starts boxes.
  TRY(box::refuse_what_is_not_built(policy));
  if (!probe) probe = TRY(box::probe_runsc(dirs));
  box::StartOptions start;
  start.runsc = probe->runsc.path;
  start.cancel_fd = options.cancel_fd;
  if (no_limits) {
    start.limits = *no_limits;
  } else {
    start.limits = cgroup::best_of(TRY(
        box::probe_limits(dirs, policy->limits_mode == LimitsMode::kRequired, options.cancel_fd)));
    if (!start.limits.controls.any() && !start.limits.no_answer) no_limits = start.limits;
  }
  start.platform = TRY(box::choose_platform(
      *probe, policy->platform, dirs, [&](const gvisor::Runsc& runsc, const std::string& name) {
        if (options.progress) {
          options.progress("trying gVisor on this host: " + name + " (once per boot) ...");
        }
        return box::try_platform(dirs, runsc, name, policy->scratch, options.cancel_fd);
      }));
  return start;
}

BoxManager::BoxManager(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
BoxManager::BoxManager(BoxManager&&) noexcept = default;
BoxManager::~BoxManager() = default;

Result<BoxManager> BoxManager::open(BoxManagerOptions options) {
  auto impl = std::make_shared<Impl>();
  impl->dirs = TRY(box::host_dirs());
  if (!options.libexec.empty()) impl->dirs.libexec = options.libexec;
  impl->options = std::move(options);
  box::sweep(impl->dirs);
  return BoxManager(std::move(impl));
}

Result<Box> BoxManager::run(const Policy& policy, const std::string& project_dir,
                            const std::string& directory) {
  auto start = TRY(impl_->start_options(policy));
  start.project_dir = project_dir;
  start.directory = directory;
  auto handle = TRY(box::BoxHandle::start(policy, impl_->dirs, start));
  return Box(std::make_unique<Box::Impl>(impl_, std::move(handle)));
}

Result<Box> BoxManager::create(const BoxName& name, const Policy& policy,
                               const std::string& project_dir) {
  auto handle = TRY(box::BoxStore(impl_->dirs).create(name, project_dir, policy));
  auto impl = std::make_unique<Box::Impl>(impl_, std::move(handle));
  impl->log.write(audit::Event("create").text("name", name.name).text("scope", name.scope));
  return Box(std::move(impl));
}

Result<Box> BoxManager::find(const BoxName& name) {
  auto handle = TRY(box::BoxStore(impl_->dirs).find(name));
  return Box(std::make_unique<Box::Impl>(impl_, std::move(handle)));
}

Result<std::vector<BoxInfo>> BoxManager::list() const { return box::BoxStore(impl_->dirs).list(); }

Result<BoxEnd> BoxManager::remove(const BoxName& name) {
  return box::BoxStore(impl_->dirs).remove(name);
}

}  // namespace temenos
