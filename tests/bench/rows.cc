#include "tests/bench/rows.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdlib>

#include "base/try.h"
#include "sys/file_sys.h"
#include "tests/bench/network_rows.h"
#include "tests/bench/processes.h"
#include "tests/bench/runsc_inside.h"

namespace temenos::bench {
namespace {

using Clock = std::chrono::steady_clock;

const std::vector<std::string> kTrue{"/bin/true"};
constexpr char kGuestInBox[] = "/root/guest";
constexpr char kFileInBox[] = "/root/file";
constexpr std::size_t kFileBytes = 4096;
constexpr std::size_t kMaxGuest = 16 << 20;
constexpr int kStream = 64;  // MiB

template <typename F>
Result<double> timed_ms(F&& work) {
  const auto begin = Clock::now();
  TRY(work());
  const std::chrono::duration<double, std::milli> spent = Clock::now() - begin;
  return spent.count();
}

double thread_cpu_ms() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) / 1e6;
}

// See Row::busy_blocks.
double busy_factor() {
  constexpr double kWorkMs = 40;
  const auto begin = Clock::now();
  const double cpu = thread_cpu_ms();
  while (thread_cpu_ms() - cpu < kWorkMs) {
  }
  const std::chrono::duration<double, std::milli> spent = Clock::now() - begin;
  return std::max(1.0, spent.count() / kWorkMs);
}

// A box that lives while rows are measured, and the way to run runsc where it runs.
struct Arena {
  Subject box;
  RunscInside runsc;

  static Result<Arena> open(const Plan& plan) {
    const auto before = descendants();
    auto box = TRY(Subject::start(*plan.host));
    std::set<pid_t> made;
    for (const pid_t pid : descendants()) {
      if (!before.contains(pid)) made.insert(pid);
    }
    auto runsc = TRY(RunscInside::enter(TRY(sort_processes(made)).runsc_run));
    return Arena{std::move(box), std::move(runsc)};
  }
};

// What one box costs, while it is the only one of ours.
Result<void> memory(const Plan& plan, std::vector<Row>& rows) {
  if (!wanted(plan, {"memory"})) return {};
  Row row{.id = "memory", .kind = "ratio", .unit = "MiB", .theirs = "sandbox and gofer"};
  for (int block = 0; block < 3; ++block) {
    auto box = TRY(Subject::start(*plan.host));
    TRY(box.exec(kTrue));
    const auto sorted = TRY(sort_processes(descendants()));
    auto ours = sorted.ours;
    ours.push_back(sorted.runsc_run);
    const auto bytes = pss_bytes(ours);
    if (!bytes && bytes.error().code == Code::kUnsupported) {
      row.skipped = bytes.error().what;
      break;
    }
    constexpr double kMiB = 1 << 20;
    row.ours_blocks.push_back(static_cast<double>(TRY(std::move(bytes))) / kMiB);
    row.theirs_blocks.push_back(static_cast<double>(TRY(pss_bytes(sorted.two))) / kMiB);
    TRY(box.stop());
  }
  rows.push_back(std::move(row));
  return {};
}

Result<double> spawn_in_box(Subject& box, int count) {
  const std::string text = TRY(box.exec({kGuestInBox, std::to_string(count)}));
  long long ns = 0;
  std::from_chars(text.data(), text.data() + text.size(), ns);
  if (ns <= 0) return fail(Code::kInternal, "the guest printed no time", "run it by hand");
  return static_cast<double>(ns) / 1e6;
}

Result<void> exec(const Plan& plan, Arena& arena, std::vector<Row>& rows) {
  if (!wanted(plan, {"exec", "exec_less_spawn"})) return {};
  constexpr int kPerBlock = 12;
  const std::string guest = TRY(sys::read_path(plan.guest, kMaxGuest));
  TRY(arena.box.write(kGuestInBox, guest, 0755));
  TRY(spawn_in_box(arena.box, kPerBlock));
  Row ratio{.id = "exec", .kind = "ratio", .unit = "ms", .theirs = "runsc exec"};
  Row less{.id = "exec_less_spawn", .kind = "difference", .unit = "ms", .theirs = "spawn inside"};
  for (int block = 0; block < plan.blocks; ++block) {
    std::vector<double> ours;
    std::vector<double> theirs;
    std::vector<double> inside;
    for (int i = 0; i < kPerBlock; ++i) {
      ours.push_back(TRY(timed_ms([&] { return arena.box.exec(kTrue); })));
      theirs.push_back(TRY(arena.runsc.exec_in_box(kTrue)));
      // The first spawn of a fresh process is not like the later ones; init's are later ones.
      if (i % 4 == 3) inside.push_back(TRY(spawn_in_box(arena.box, kPerBlock)));
    }
    // After a runsc exec the caches are cold for what comes next, which no row asks for: the
    // difference is between spawns in a row on both sides.
    std::vector<double> in_a_row;
    for (int i = 0; i < 2 * kPerBlock; ++i) {
      in_a_row.push_back(TRY(timed_ms([&] { return arena.box.exec(kTrue); })));
    }
    ratio.ours_blocks.push_back(median(ours));
    ratio.theirs_blocks.push_back(median(theirs));
    less.ours_blocks.push_back(median(in_a_row));
    less.theirs_blocks.push_back(median(inside));
  }
  rows.push_back(std::move(ratio));
  rows.push_back(std::move(less));
  return {};
}

Result<void> files(const Plan& plan, Arena& arena, std::vector<Row>& rows) {
  if (!wanted(plan, {"read_4k", "write_4k"})) return {};
  constexpr int kPerBlock = 60;
  const std::string data(kFileBytes, 'x');
  Row read{.id = "read_4k", .kind = "ours", .unit = "ms"};
  Row write{.id = "write_4k", .kind = "ours", .unit = "ms"};
  TRY(arena.box.write(kFileInBox, data, 0644));
  for (int block = 0; block < plan.blocks; ++block) {
    std::vector<double> reads;
    std::vector<double> writes;
    for (int i = 0; i < kPerBlock; ++i) {
      writes.push_back(TRY(timed_ms([&] { return arena.box.write(kFileInBox, data, 0644); })));
      std::string got;
      reads.push_back(TRY(timed_ms([&]() -> Result<void> {
        got = TRY(arena.box.read(kFileInBox, 2 * kFileBytes));
        return {};
      })));
      if (got != data) return fail(Code::kInternal, "a file came back changed", "this is a bug");
    }
    const double busy = busy_factor();
    read.busy_blocks.push_back(busy);
    write.busy_blocks.push_back(busy);
    write.ours_blocks.push_back(median(writes));
    read.ours_blocks.push_back(median(reads));
  }
  rows.push_back(std::move(read));
  rows.push_back(std::move(write));
  return {};
}

Result<void> create(const Plan& plan, Arena& arena, std::vector<Row>& rows) {
  if (!wanted(plan, {"create", "start", "stop"})) return {};
  constexpr int kPerBlock = 3;
  Row create{.id = "create", .kind = "ratio", .unit = "ms", .theirs = "runsc run, runsc exec"};
  Row start{.id = "start", .kind = "ours", .unit = "ms"};
  Row stop{.id = "stop", .kind = "ratio", .unit = "ms", .theirs = "runsc delete --force"};
  for (int block = 0; block < plan.blocks; ++block) {
    std::vector<double> ours;
    std::vector<double> theirs;
    std::vector<double> starts;
    std::vector<double> stops;
    std::vector<double> removals;
    for (int i = 0; i < kPerBlock; ++i) {
      const auto begin = Clock::now();
      auto box = TRY(Subject::start(*plan.host));
      const std::chrono::duration<double, std::milli> started = Clock::now() - begin;
      TRY(box.exec(kTrue));
      const std::chrono::duration<double, std::milli> done = Clock::now() - begin;
      starts.push_back(started.count());
      ours.push_back(done.count());
      stops.push_back(TRY(timed_ms([&] { return box.stop(); })));
      theirs.push_back(TRY(arena.runsc.run_and_exec(kTrue)));
      removals.push_back(TRY(arena.runsc.remove()));
    }
    create.ours_blocks.push_back(median(ours));
    create.theirs_blocks.push_back(median(theirs));
    start.ours_blocks.push_back(median(starts));
    stop.ours_blocks.push_back(median(stops));
    stop.theirs_blocks.push_back(median(removals));
  }
  rows.push_back(std::move(create));
  rows.push_back(std::move(start));
  rows.push_back(std::move(stop));
  return {};
}

// A whole program, with nothing as stdin and stdout. 127 when it cannot be started.
int run_program(const std::vector<std::string>& words) {
  std::vector<char*> argv;
  for (const auto& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
  pid_t pid = -1;
  int status = 0;
  const int error = posix_spawnp(&pid, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0 || waitpid(pid, &status, 0) != pid) return 127;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 127;
}

// The same sight of the host's /usr, by bubblewrap: namespaces and no kernel of its own.
const std::vector<std::string> kBubblewrap{"bwrap",     "--unshare-all", "--die-with-parent",
                                           "--ro-bind", "/usr",          "/usr",
                                           "--symlink", "usr/bin",       "/bin",
                                           "--symlink", "usr/lib",       "/lib",
                                           "--symlink", "usr/lib64",     "/lib64",
                                           "--proc",    "/proc",         "--dev",
                                           "/dev",      "--tmpfs",       "/tmp",
                                           "--tmpfs",   "/run",          "--tmpfs",
                                           "/root",     "/bin/true"};

Result<void> whole_program(const Plan& plan, std::vector<Row>& rows) {
  if (!wanted(plan, {"cli_run"})) return {};
  constexpr int kPerBlock = 3;
  Row row{.id = "cli_run", .kind = "ratio", .unit = "ms", .theirs = "bwrap"};
  std::vector<std::string> run{plan.temenos, "run", "--no-net", "--no-project"};
  if (!plan.platform.empty()) run.insert(run.end(), {"--platform", plan.platform});
  run.insert(run.end(), {"--", "true"});
  auto checked = [](const std::vector<std::string>& words) -> Result<void> {
    const int status = run_program(words);
    if (status == 0) return {};
    return fail(Code::kInternal, words[0] + " exited with " + std::to_string(status),
                "see what it says");
  };
  if (!checked(kBubblewrap)) row.skipped = "bwrap is missing, or this user may not run it";
  for (int block = 0; block < plan.blocks && row.skipped.empty(); ++block) {
    std::vector<double> ours;
    std::vector<double> theirs;
    for (int i = 0; i < kPerBlock; ++i) {
      ours.push_back(TRY(timed_ms([&] { return checked(run); })));
      theirs.push_back(TRY(timed_ms([&] { return checked(kBubblewrap); })));
    }
    row.ours_blocks.push_back(median(ours));
    row.theirs_blocks.push_back(median(theirs));
  }
  rows.push_back(std::move(row));
  return {};
}

// Bytes out of a command: the pipe, init, session and the client.
Result<void> stream(const Plan& plan, Arena& arena, std::vector<Row>& rows) {
  if (!wanted(plan, {"stdout"})) return {};
  Row row{.id = "stdout", .kind = "ours", .unit = "MiB/s"};
  const UniqueFd null(open("/dev/null", O_WRONLY | O_CLOEXEC));
  if (!null) return fail_errno(errno, "opening /dev/null", "this is a fault of the host");
  const std::vector<std::string> command{"/bin/dd", "if=/dev/zero", "bs=64k", "status=none",
                                         "count=" + std::to_string(kStream * 16)};
  for (int block = 0; block < 3; ++block) {
    const double ms = TRY(timed_ms([&] { return arena.box.exec_to(command, null.get()); }));
    row.ours_blocks.push_back(kStream * 1000.0 / ms);
  }
  rows.push_back(std::move(row));
  return {};
}

}  // namespace

double median(std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  const std::size_t half = samples.size() / 2;
  return samples.size() % 2 == 1 ? samples[half] : (samples[half - 1] + samples[half]) / 2;
}

bool wanted(const Plan& plan, std::initializer_list<const char*> ids) {
  return std::any_of(ids.begin(), ids.end(), [&plan](const std::string& id) {
    return id.compare(0, plan.only.size(), plan.only) == 0;
  });
}

Result<Measured> measure(const Plan& plan,
                         const std::function<void(const std::string&)>& progress) {
  Measured measured;
  auto& rows = measured.rows;
  progress("memory");
  TRY(memory(plan, rows));
  {
    auto arena = TRY(Arena::open(plan));
    measured.platform = arena.runsc.platform();
    progress("exec");
    TRY(exec(plan, arena, rows));
    progress("files");
    TRY(files(plan, arena, rows));
    progress("streams");
    TRY(stream(plan, arena, rows));
    progress("create");
    TRY(create(plan, arena, rows));
    TRY(arena.box.stop());
  }
  progress("networks");
  TRY(network_rows(plan, rows));
  progress("whole programs");
  TRY(whole_program(plan, rows));
  return measured;
}

}  // namespace temenos::bench
