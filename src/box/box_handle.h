// A box: what the library offers to run untrusted code in.
//
// Starting one starts its keeper, which starts everything else (ARCHITECTURE.md, "Processes"). A
// box of BoxHandle::start() lives as long as this object: when it is destroyed, or its process
// dies, the box ends and leaves nothing. A box of a BoxStore (box_manager.h) lives until it is
// stopped, and its files until it is removed; the object is a handle, of which there may be many in
// many processes. It trusts the policy and the caller; it trusts nothing that comes out of the box.
//
// Thread-safety: none; one thread at a time an object. For several threads, a handle each.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "box/allowlist_plan.h"
#include "box/autoexec_report.h"
#include "box/box_record.h"
#include "box/host_dirs.h"
#include "box/jobs.h"
#include "box/keeper_link.h"
#include "box/mounts.h"
#include "box/network_log.h"
#include "box/session_client.h"
#include "cgroup/trial.h"
#include "keeper/end_reason.h"
#include "store/data_dir.h"
#include "temenos/allowlist_edit.h"
#include "temenos/box_stats.h"
#include "temenos/error.h"
#include "temenos/policy.h"

namespace temenos::box {

// HOME in a box on base `host`.
inline constexpr char kBoxHome[] = "/root";

struct StartOptions {
  std::string project_dir;  // mounted when not empty; absolute, no symlink in it
  std::string directory;    // where commands start when there is a project: it or below it
  std::string runsc;        // absolute
  std::string platform;     // "systrap", "ptrace", "kvm"
  unsigned start_timeout_s = 30;
  cgroup::Trial limits;  // the driver to use, and what it keeps; without one, nothing is warned of
  int cancel_fd = -1;    // borrowed; once it is readable, the start is given up
};

// Code::kNotBuilt for a policy that asks for a part of temenos that does not exist yet.
Result<void> refuse_what_is_not_built(const Policy& policy);

// Removes what killed processes left: half-made data dirs, and whole ones of boxes without a name.
void sweep(const HostDirs& dirs);

// Ends the box with a name whose data dir this is, and looks at what it wrote (BoxHandle::stop()).
// The caller has the turn (store/data_dir.h).
Result<BoxEnd> stop_box(const HostDirs& dirs, store::DataDir& dir,
                        std::unique_ptr<KeeperLink> keeper);

class BoxHandle {
 public:
  // A box that goes with this object. Refuses what is not built yet or cannot be held here, and
  // then leaves nothing behind.
  static Result<BoxHandle> start(const Policy& policy, const HostDirs& dirs,
                                 const StartOptions& options);
  // The handle of a box with a name. Nothing is started.
  static BoxHandle of(const HostDirs& dirs, store::DataDir dir, BoxRecord record);

  BoxHandle(BoxHandle&&) = default;
  BoxHandle& operator=(BoxHandle&&) = delete;
  ~BoxHandle();

  // With a name only. Starts it if it does not live, and connects; of two that do so at once, one
  // starts it. `options.project_dir` is not looked at: the record says it.
  // True: this call has started it.
  Result<bool> ensure_started(const StartOptions& options);
  // Connects if it lives: kNotFound when it does not.
  Result<void> attach();
  // Somebody keeps it alive. It may end at any moment.
  bool is_alive() const { return store::is_alive(data_); }

  bool named() const { return record_ != nullptr; }
  // With a name only.
  const BoxRecord& record() const { return *record_; }
  const store::DataDir& data_dir() const { return data_; }

  // Connected. An end that nobody had asked for and that has been heard meanwhile is to be told
  // first: untold_end().
  bool attached() const { return session_ != nullptr; }
  // Why the box that this handle is connected to has ended; nothing while it lives. `ask`: its
  // keeper is asked, else it counts what it has said. One with a name that was stopped, or whose
  // time was over, is none: it is as if there had been no connection.
  std::optional<Error> untold_end(bool ask);
  // After an error that says that the box is gone: the next attach() looks anew.
  void detach();
  // This handle's connection; the box must have been started or attached.
  SessionClient& session() { return *session_; }
  // A further one, for another thread or another command at the same time.
  Result<SessionClient> connect();
  // Where its jobs are kept (box/jobs.h); made where missing.
  Result<UniqueFd> jobs_directory() const;
  // Makes a job known to the session; the box must have been started or attached.
  Result<void> add_job(const NewJob& job) {
    return keeper_->add_job(job.number, job.segment_limit, job.segments);
  }
  // What it uses now; it must have been started or attached.
  Result<BoxStats> stats();
  // The allowlist now, whoever has edited it.
  Result<Rules> allowlist() const;
  // allowlist_edit.h says what holds when.
  enum class Edit { kAllow, kDeny };
  Result<AllowlistEdit> edit_allowlist(Edit edit, const Rules& rules);
  // What its network refuses from now on; nothing for a box without a filtered one.
  std::optional<RefusalWatch> watch_refusals();
  // What has died of its network becomes a warning, once.
  void note_trouble(const std::string& trouble);
  // The kernel has killed for want of memory in the box: it is about to end, or has ended.
  bool ran_out_of_memory();
  // A limit of memory is kept for this box: want of it ends the box by name.
  bool memory_is_held() const { return memory_is_held_; }
  const std::vector<std::string>& warnings() const { return warnings_; }
  // Why nothing holds its network to the policy; empty where it is held.
  std::string_view why_network_is_free() const;
  // The environment of a command, as "K=V": the box's defaults, then the policy's, then `extra`.
  // The proxy of cooperative enforcement is known, and in it, once the box was started or attached.
  std::vector<std::string> environment(const std::map<std::string, std::string>& extra = {}) const;
  // The directory of a command that names none: StartOptions::directory, the project, or, when
  // there is none, the home directory in the box.
  const std::string& default_directory() const { return default_directory_; }

  // Ends the box, waits until its last process is gone and looks at the writable mounts, in this
  // order: what is still alive could write after the look. Without a name, what was the box's own
  // is removed. A box with a name that had ended before (by itself, by another handle, by a crash)
  // is looked at all the same, unless somebody has done so.
  Result<BoxEnd> stop();
  // The same look while it lives: what it has made so far.
  BoxEnd look() const;
  // With a name only: what the look at an earlier life found that nobody had been told of.
  const BoxEnd& found_at_start() const { return found_at_start_; }

  // The error of a call to session(), or, when that says that the box is gone, the reason why.
  Error explain(const Error& error);
  // That reason as a value; empty as long as explain() has told none.
  std::optional<keeper::EndReason> end_reason() const { return end_reason_; }
  // When that is want of memory: which of the kernel's counters says so.
  const std::string& oom_evidence() const { return oom_evidence_; }

 private:
  BoxHandle() = default;
  Result<void> launch(const Policy& policy, const StartOptions& options, bool durable);
  void take_settings(const Policy& policy);
  Result<void> prepare(const Policy& policy, const StartOptions& options);
  Result<Policy> policy_now() const;
  Result<void> keep_policy(const Policy& policy);
  Result<void> apply_allowlist(KeeperLink& link, const Rules& rules, Edit edit);
  std::string group_name() const;
  BoxEnd look_again() const;

  HostDirs dirs_;
  store::DataDir data_;
  std::unique_ptr<BoxRecord> record_;  // with a name only
  std::optional<Policy> policy_;       // without
  Mounts mounts_;                      // without a name: held until the look at the end
  std::vector<std::string> warnings_;
  std::string trouble_;  // the last one of the network
  bool memory_is_held_ = false;
  std::map<std::string, std::string> env_;
  NetworkMode network_ = NetworkMode::kNone;
  bool cooperative_ = false;  // of kFiltered
  keeper::ProxyAddress proxy_;
  std::string default_directory_ = kBoxHome;
  std::unique_ptr<KeeperLink> keeper_;
  std::unique_ptr<SessionClient> session_;
  BoxEnd found_at_start_;
  std::optional<keeper::EndReason> end_reason_;
  std::string oom_evidence_;
};

}  // namespace temenos::box
