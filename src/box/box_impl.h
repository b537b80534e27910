// What a Box and a BoxManager share. Private to box.cc and box_manager.cc.
#pragma once

#include <memory>
#include <optional>

#include "audit/log.h"
#include "box/box_handle.h"
#include "box/host_dirs.h"
#include "box/host_probe.h"
#include "box/limits_probe.h"
#include "box/port_pump.h"
#include "keeper/oom_watch.h"
#include "temenos/box.h"
#include "temenos/box_manager.h"

namespace temenos {

// This host: where things lie, and which runsc and platform to use, found out when first needed.
struct BoxManager::Impl {
  box::HostDirs dirs;
  BoxManagerOptions options;
  std::optional<box::HostProbe> probe;
  // Nothing holds any, and that is sure; what does is remembered elsewhere (box/limits_probe.h).
  std::optional<cgroup::Trial> no_limits;

  Result<box::StartOptions> start_options(const Policy& policy);
};

struct Box::Impl {
  Impl(std::shared_ptr<BoxManager::Impl> on, box::BoxHandle of)
      : host(std::move(on)), handle(std::move(of)) {
    if (!handle.named() && !handle.memory_is_held()) oom = keeper::OomWatch::begin();
    if (handle.named()) log = audit::Log(handle.data_dir().directory.get());
  }

  // Started, if it may be, and connected.
  Result<void> ready();
  // Connected, but not started for it: kNotFound when the box does not live.
  Result<void> attached();
  // The error of a call, explained; a box that is gone is looked for anew by the next call.
  Error explain(const Error& error);
  // Through a connection of their own, made when first needed.
  Result<PortPump*> ports();
  // A job known to the session.
  Result<std::uint32_t> make_job(const ExecRequest& request, std::uint64_t log_limit);
  Result<void> tar(std::vector<std::string> argv, const ExecIo& io, std::string_view path);

  std::shared_ptr<BoxManager::Impl> host;
  box::BoxHandle handle;
  audit::Log log;
  std::optional<Error> ended;
  std::unique_ptr<PortPump> pump;
  // Of a box that this process has started and that has no group of its own: then keeper and
  // sandbox are in the memory group of this process.
  std::optional<keeper::OomWatch> oom;
};

}  // namespace temenos
