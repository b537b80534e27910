#include "temenos/box.h"

#include "base/text.h"
#include "base/try.h"
#include "box/box_impl.h"

namespace temenos {
namespace {

using audit::Event;

// What a call did, for the audit log.
template <typename T>
Event event_of(const char* name, std::string_view path, const Result<T>& result) {
  Event event(name);
  event.text("path", path).flag("ok", result.has_value());
  if (!result) event.text("error", result.error().to_string());
  return event;
}

Event event_of(const ExecRequest& request, const Result<ExecResult>& result) {
  Event event("exec");
  event.texts("argv", request.argv).text("cwd", request.cwd);
  if (!result) return event.flag("ok", false).text("error", result.error().to_string());
  if (result->job) event.text("job", *result->job);
  if (result->exit_code) event.number("exit_code", *result->exit_code);
  if (result->signal) event.text("signal", *result->signal);
  if (result->timed_out) event.flag("timed_out", true);
  if (result->oom) event.flag("oom", true);
  return event.number("duration_ms", result->duration.count());
}

}  // namespace

Result<void> Box::Impl::ready() {
  if (const auto end = handle.untold_end(false)) return tl::make_unexpected(explain(*end));
  if (handle.attached()) return {};
  pump.reset();  // of an earlier life
  if (!handle.named()) {
    return fail(Code::kBoxDied, "the box has ended", "start another one");
  }
  // Without a look at the host, which may take a while, when it lives.
  if (handle.attach()) return {};
  const auto started = handle.ensure_started(TRY(host->start_options(handle.record().policy)));
  if (!started || *started) {
    Event event("start");
    event.flag("ok", started.has_value());
    if (!started) event.text("error", started.error().to_string());
    event.texts("warnings", handle.warnings());
    log.write(event);
  }
  if (!started) return tl::make_unexpected(started.error());
  oom.reset();
  if (*started && !handle.memory_is_held()) oom = keeper::OomWatch::begin();
  return {};
}

Error Box::Impl::explain(const Error& error) {
  Error reason = handle.explain(error);
  if (handle.end_reason()) ended = reason;
  if (handle.named() && (error.code == Code::kBoxDied || error.code == Code::kProtocol ||
                         error.code == Code::kTimedOut)) {
    handle.detach();
    pump.reset();
  }
  return reason;
}

Box::Box(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Box::Box(Box&&) noexcept = default;
Box& Box::operator=(Box&&) noexcept = default;
Box::~Box() = default;

Result<void> Box::start() {
  // Whoever wants it started is told of an end by ended(): an error would say that it does not run.
  if (const auto end = impl_->handle.untold_end(true)) {
    Error error = impl_->explain(*end);
    if (!impl_->handle.named()) return tl::make_unexpected(std::move(error));
  }
  return impl_->ready();
}

Result<BoxEnd> Box::stop() {
  auto end = impl_->handle.stop();
  Event event("stop");
  event.flag("ok", end.has_value());
  if (end) event.number("obeyed_files", static_cast<std::int64_t>(end->made.size()));
  if (!end) event.text("error", end.error().to_string());
  impl_->log.write(event);
  return end;
}

BoxEnd Box::look() const { return impl_->handle.look(); }
bool Box::is_alive() const { return impl_->handle.is_alive(); }
const BoxEnd& Box::found_at_start() const { return impl_->handle.found_at_start(); }
const std::optional<Error>& Box::ended() const { return impl_->ended; }
std::string_view Box::end_reason() const {
  const auto reason = impl_->handle.end_reason();
  return reason ? keeper::end_reason_name(*reason) : "";
}
bool Box::network_enforced() const { return network_enforcement_reason().empty(); }
std::string_view Box::network_enforcement_reason() const {
  return impl_->handle.why_network_is_free();
}
const std::vector<std::string>& Box::warnings() const { return impl_->handle.warnings(); }

Result<BoxStats> Box::stats() {
  TRY(impl_->attached());
  auto stats = impl_->handle.stats();
  if (!stats) stats = tl::make_unexpected(impl_->explain(stats.error()));
  return stats;
}

std::vector<std::string> Box::environment(const std::map<std::string, std::string>& extra) const {
  return impl_->handle.environment(extra);
}
const std::string& Box::default_directory() const { return impl_->handle.default_directory(); }

ExecRequest Box::completed(const ExecRequest& request) const {
  ExecRequest full = request;
  if (full.env.empty()) full.env = environment();
  if (full.cwd.empty()) full.cwd = default_directory();
  return full;
}

Result<ExecResult> Box::exec(const ExecRequest& request, const ExecIo& io) {
  TRY(impl_->ready());
  const ExecRequest full = completed(request);
  ExecResult so_far;
  auto refusals = impl_->handle.watch_refusals();
  auto result = impl_->handle.session().exec(
      full, io, &so_far, [&] { return impl_->make_job(full, box::kDefaultJobLog); });
  // The kernel may have killed what this command ran in, and the box ends a moment later.
  if (result && !result->job && result->exit_code != 0 && impl_->handle.ran_out_of_memory()) {
    so_far = std::move(*result);
    so_far.exit_code.reset();
    result = fail(Code::kBoxDied, "the box ran out of memory");
  }
  if (!result) {
    Error error = impl_->explain(result.error());
    if (impl_->handle.end_reason() == keeper::EndReason::kOutOfMemory) {
      // The kernel ended the command together with its box, as it does with one outside of a box.
      so_far.oom = so_far.truncated = true;
      so_far.signal = "SIGKILL";
      so_far.oom_evidence = impl_->handle.oom_evidence();
      result = std::move(so_far);
    } else {
      result = tl::make_unexpected(std::move(error));
    }
  }
  // The box may outlive that: on systrap the kernel often chooses the process that one command runs
  // in.
  if (result && !result->oom && result->exit_code != 0 && impl_->oom) {
    result->oom_evidence = impl_->oom->evidence();
    result->oom = !result->oom_evidence.empty();
    if (result->oom) impl_->oom = keeper::OomWatch::begin();
  }
  if (refusals) {
    if (result) result->denials = refusals->end();
    impl_->handle.note_trouble(refusals->trouble());
  }
  impl_->log.write(event_of(full, result));
  return result;
}

// One call to the session, explained and written to the audit log.
#define TEMENOS_CALL(name, path, call)                                       \
  TRY(impl_->ready());                                                       \
  auto result = impl_->handle.session().call;                                \
  if (!result) result = tl::make_unexpected(impl_->explain(result.error())); \
  impl_->log.write(event_of(name, path, result));                            \
  return result

Result<std::string> Box::read_file(std::string_view path, std::uint64_t max, std::uint64_t offset) {
  TEMENOS_CALL("read", path, read_file(path, max, offset));
}

Result<void> Box::write_file(std::string_view path, std::string_view data,
                             const WriteOptions& options) {
  TEMENOS_CALL("write", path, write_file(path, data, options));
}

Result<std::vector<DirEntry>> Box::list(std::string_view path, std::size_t max_entries) {
  TEMENOS_CALL("list", path, list(path, max_entries));
}

Result<FileInfo> Box::stat(std::string_view path, bool follow) {
  TEMENOS_CALL("stat", path, stat(path, follow));
}

Result<bool> Box::mkdir(std::string_view path, std::uint32_t mode, bool parents) {
  TEMENOS_CALL("mkdir", path, mkdir(path, mode, parents));
}

Result<std::uint64_t> Box::remove(std::string_view path, bool recursive) {
  TEMENOS_CALL("remove", path, remove(path, recursive));
}

#undef TEMENOS_CALL

// tar runs in the box: what it reads and makes is the box's, whatever the archive holds.
Result<void> Box::Impl::tar(std::vector<std::string> argv, const ExecIo& io,
                            std::string_view path) {
  TRY(ready());
  ExecRequest request;
  request.argv = std::move(argv);
  request.env = handle.environment();
  const auto result = handle.session().exec(request, io);
  Result<void> done;
  if (!result) {
    done = tl::make_unexpected(explain(result.error()));
  } else if (result->exit_code != 0) {
    std::string why = result->signal.value_or(result->stderr_data);
    while (!why.empty() && why.back() == '\n') why.pop_back();
    done = fail(Code::kIo, "tar of " + escape(path) + " failed: " + escape(why),
                "paths are those inside the box");
  }
  log.write(event_of(io.stdin_fd >= 0 ? "tar_in" : "tar_out", path, done));
  return done;
}

Result<void> Box::tar_out(std::string_view path, int fd) {
  const auto info = TRY(stat(path, true));
  std::string directory(path);
  std::string name = ".";
  if (info.type != FileType::kDirectory) {
    const auto slash = directory.rfind('/');
    name = directory.substr(slash + 1);
    directory.resize(slash == 0 ? 1 : slash);
  }
  ExecIo io;
  io.stdout_fd = fd;
  return impl_->tar({"tar", "-C", directory, "-cf", "-", "--", name}, io, path);
}

Result<void> Box::tar_in(std::string_view path, int fd) {
  ExecIo io;
  io.stdin_fd = fd;
  return impl_->tar({"tar", "-C", std::string(path), "-xof", "-"}, io, path);
}

}  // namespace temenos
