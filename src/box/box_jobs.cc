// Box: jobs and ports.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>

#include "base/try.h"
#include "box/box_impl.h"
#include "box/job_spool.h"
#include "box/jobs.h"

namespace temenos {

using audit::Event;

Result<std::uint32_t> Box::Impl::make_job(const ExecRequest& request, std::uint64_t log_limit) {
  const UniqueFd jobs = TRY(handle.jobs_directory());
  box::JobSpec spec;
  spec.argv = request.argv;
  spec.cwd = request.cwd;
  spec.timeout = request.timeout;
  spec.log_limit = log_limit;
  const auto job = TRY(box::create_job(jobs.get(), spec));
  if (auto added = handle.add_job(job); !added) {
    (void)box::remove_job(jobs.get(), job.number);
    return tl::make_unexpected(std::move(added).error());
  }
  return job.number;
}

Result<void> Box::Impl::attached() {
  if (const auto end = handle.untold_end(false)) return tl::make_unexpected(explain(*end));
  return handle.attach();
}

Result<std::uint32_t> Box::start_job(const ExecRequest& request, std::uint64_t log_limit) {
  TRY(impl_->ready());
  const ExecRequest full = completed(request);
  Result<std::uint32_t> number = impl_->make_job(full, log_limit);
  if (number) {
    auto started = impl_->handle.session().start_job(full, *number);
    if (!started) {
      (void)box::remove_job(TRY(impl_->handle.jobs_directory()).get(), *number);
      number = tl::make_unexpected(std::move(started).error());
    }
  }
  if (!number) number = tl::make_unexpected(impl_->explain(number.error()));
  Event event("job");
  event.texts("argv", full.argv).text("cwd", full.cwd).flag("ok", number.has_value());
  if (number) event.number("job", *number);
  if (!number) event.text("error", number.error().to_string());
  impl_->log.write(event);
  return number;
}

Result<std::vector<JobInfo>> Box::jobs() const {
  return box::list_jobs(TRY(impl_->handle.jobs_directory()).get(), is_alive());
}

Result<JobInfo> Box::job(std::uint32_t number) const {
  return box::read_job(TRY(impl_->handle.jobs_directory()).get(), number, is_alive());
}

Result<JobLog> Box::job_log(std::uint32_t number, std::uint64_t cursor,
                            std::size_t max_bytes) const {
  const UniqueFd jobs = TRY(impl_->handle.jobs_directory());
  const UniqueFd job = TRY(box::open_job(jobs.get(), number));
  // Before the log is read: what is not over may write on, what is over has written all.
  const bool alive = is_alive();
  auto read = TRY(box::read_spool(job.get(), cursor, max_bytes));
  JobLog log;
  for (auto& chunk : read.chunks) {
    log.chunks.push_back({chunk.stream == box_wire::Stream::kStderr, std::move(chunk.bytes)});
  }
  log.next = read.next;
  log.dropped = read.dropped;
  log.whole = read.whole;
  log.over = read.end.has_value() || !alive;
  return log;
}

// Session forgets a job with its end; the log knows it.
Result<bool> Box::wait_job(std::uint32_t number, std::chrono::milliseconds timeout, int cancel_fd) {
  Result<bool> over = false;
  if (auto attached = impl_->attached(); !attached) {
    over = tl::make_unexpected(std::move(attached).error());
  } else {
    over = impl_->handle.session().wait_job(number, timeout, cancel_fd);
    if (!over) over = tl::make_unexpected(impl_->explain(over.error()));
  }
  if (over || over.error().code != Code::kNotFound) return over;
  const auto info = TRY(job(number));
  if (info.state != JobState::kRunning) return true;
  return over;
}

Result<void> Box::signal_job(std::uint32_t number, int signal, bool tree) {
  TRY(impl_->attached());
  auto sent = impl_->handle.session().signal_job(number, signal, tree);
  if (!sent) sent = tl::make_unexpected(impl_->explain(sent.error()));
  Event event("signal");
  event.number("job", number).number("signal", signal).flag("ok", sent.has_value());
  impl_->log.write(event);
  return sent;
}

Result<PortPump*> Box::Impl::ports() {
  TRY(ready());
  if (!pump) pump = TRY(PortPump::start(TRY(handle.connect())));
  return pump.get();
}

Result<int> Box::dial(const PortTarget& target) {
  auto* pump = TRY(impl_->ports());
  auto end = pump->dial(target);
  Event event("dial");
  event.number("port", target.port).text("socket", target.socket_path).flag("ok", end.has_value());
  impl_->log.write(event);
  // A pump whose box has ended is of no more use; the next call makes another one.
  if (!end && end.error().code == Code::kBoxDied) impl_->pump.reset();
  if (!end) return tl::make_unexpected(impl_->explain(end.error()));
  return end->release();
}

Result<std::uint16_t> Box::forward(const PortTarget& target, std::uint16_t host_port) {
  auto* pump = TRY(impl_->ports());
  UniqueFd listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!listener) return fail_errno(errno, "socket");
  // So that a port that was just let go can be had again; two listeners it does not allow.
  const int on = 1;
  (void)setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(host_port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      listen(listener.get(), 128) != 0) {
    return fail_errno(errno, "listening on 127.0.0.1:" + std::to_string(host_port),
                      "choose another port, or 0 for any");
  }
  auto port = pump->forward(std::move(listener), target);
  Event event("forward");
  event.number("port", target.port).text("socket", target.socket_path);
  event.number("host_port", port.value_or(host_port)).flag("ok", port.has_value());
  impl_->log.write(event);
  return port;
}

}  // namespace temenos
