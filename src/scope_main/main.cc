// temenos-scope: asks systemd for a transient scope around one process, and waits until it is
// there.
//
// A program of its own, so that nothing else of temenos carries systemd's library, and so that a
// bus that hangs can be given up on by ending this process. Its arguments come from keeper:
//   BUS-SOCKET UNIT PID DESCRIPTION MEMORY-MAX TASKS-MAX CPU-US-PER-SECOND
// 0 is no limit. Status 0: the process is in the scope. Else one line on stdout says why not.
// Source: org.freedesktop.systemd1(5), systemd.scope(5), systemd.resource-control(5).
#include <systemd/sd-bus.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace {

constexpr char kService[] = "org.freedesktop.systemd1";
constexpr char kPath[] = "/org/freedesktop/systemd1";
constexpr char kManager[] = "org.freedesktop.systemd1.Manager";
// A stop of the scope: keeper ends the box when it is told to, in this time.
constexpr std::uint64_t kStopUs = 10'000'000;

struct Wanted {
  const char* unit;
  std::uint32_t pid;
  const char* description;
  std::uint64_t memory;
  std::uint64_t tasks;
  std::uint64_t cpu_us;
};

// Each step keeps the first error: sd-bus returns negative errno.
class Steps {
 public:
  void operator()(int result) {
    if (result < 0 && error_ == 0) error_ = result;
  }
  int error() const { return error_; }

 private:
  int error_ = 0;
};

int append_properties(sd_bus_message* message, const Wanted& wanted, bool oom_policy) {
  Steps step;
  const auto number = [&](const char* name, std::uint64_t value) {
    step(sd_bus_message_append(message, "(sv)", name, "t", value));
  };
  step(sd_bus_message_open_container(message, 'a', "(sv)"));
  step(sd_bus_message_append(message, "(sv)", "Description", "s", wanted.description));
  step(sd_bus_message_append(message, "(sv)", "PIDs", "au", 1, wanted.pid));
  // keeper makes two groups below, and counters of a failed unit are nobody's to collect.
  step(sd_bus_message_append(message, "(sv)", "Delegate", "b", 1));
  step(sd_bus_message_append(message, "(sv)", "CollectMode", "s", "inactive-or-failed"));
  // The sandbox's death is keeper's to tell; systemd shall not end the rest for it.
  if (oom_policy) step(sd_bus_message_append(message, "(sv)", "OOMPolicy", "s", "continue"));
  number("TimeoutStopUSec", kStopUs);
  step(sd_bus_message_append(message, "(sv)", "MemoryAccounting", "b", 1));
  step(sd_bus_message_append(message, "(sv)", "TasksAccounting", "b", 1));
  if (wanted.memory > 0) {
    number("MemoryMax", wanted.memory);
    number("MemorySwapMax", 0);
  }
  if (wanted.tasks > 0) number("TasksMax", wanted.tasks);
  if (wanted.cpu_us > 0) number("CPUQuotaPerSecUSec", wanted.cpu_us);
  step(sd_bus_message_close_container(message));
  return step.error();
}

// The path of the job that makes it.
int start_unit(sd_bus* bus, const Wanted& wanted, bool oom_policy, sd_bus_error* error,
               std::string& job) {
  sd_bus_message* message = nullptr;
  sd_bus_message* reply = nullptr;
  Steps step;
  step(sd_bus_message_new_method_call(bus, &message, kService, kPath, kManager,
                                      "StartTransientUnit"));
  if (step.error() == 0) {
    step(sd_bus_message_append(message, "ss", wanted.unit, "fail"));
    step(append_properties(message, wanted, oom_policy));
    step(sd_bus_message_append(message, "a(sa(sv))", 0));
  }
  if (step.error() == 0) step(sd_bus_call(bus, message, 0, error, &reply));
  const char* path = nullptr;
  if (step.error() == 0) step(sd_bus_message_read(reply, "o", &path));
  if (step.error() == 0) job = path;
  sd_bus_message_unref(reply);
  sd_bus_message_unref(message);
  return step.error();
}

struct Awaited {
  std::string job;
  std::string result;  // empty: not over yet
};

int on_job_removed(sd_bus_message* message, void* data, sd_bus_error*) {
  auto* awaited = static_cast<Awaited*>(data);
  std::uint32_t id = 0;
  const char *path = nullptr, *unit = nullptr, *result = nullptr;
  if (sd_bus_message_read(message, "uoss", &id, &path, &unit, &result) < 0) return 0;
  if (awaited->job == path) awaited->result = result;
  return 0;
}

int wait_for_job(sd_bus* bus, Awaited& awaited) {
  while (awaited.result.empty()) {
    int done = sd_bus_process(bus, nullptr);
    if (done == 0) done = sd_bus_wait(bus, UINT64_MAX);  // who called us sets the time
    if (done < 0) return done;
  }
  return 0;
}

int connect(const char* socket, sd_bus** bus) {
  Steps step;
  step(sd_bus_new(bus));
  if (step.error() != 0) return step.error();
  // No byte of a socket's path has a meaning in an address, once it is escaped.
  std::string address = "unix:path=";
  for (const char* c = socket; *c != '\0'; ++c) {
    char escaped[4];
    snprintf(escaped, sizeof escaped, "%%%02x", static_cast<unsigned char>(*c));
    address += escaped;
  }
  step(sd_bus_set_address(*bus, address.c_str()));
  step(sd_bus_set_bus_client(*bus, 1));
  step(sd_bus_start(*bus));
  return step.error();
}

int failed(const char* what, int error, const sd_bus_error* said) {
  const bool has_text = said != nullptr && said->message != nullptr;
  printf("%s: %s\n", what, has_text ? said->message : strerror(-error));
  return 1;
}

int run(const char* socket, const Wanted& wanted) {
  sd_bus* bus = nullptr;
  if (const int error = connect(socket, &bus); error < 0) {
    return failed("cannot connect to the bus", error, nullptr);
  }
  Awaited awaited;
  sd_bus_error error{};
  int done = sd_bus_match_signal(bus, nullptr, kService, kPath, kManager, "JobRemoved",
                                 on_job_removed, &awaited);
  if (done >= 0)
    done = sd_bus_call_method(bus, kService, kPath, kManager, "Subscribe", &error, nullptr, "");
  if (done < 0) return failed("cannot listen to systemd", done, &error);
  // Signals that come meanwhile are kept for sd_bus_process().
  done = start_unit(bus, wanted, true, &error, awaited.job);
  // Scopes have an OOMPolicy since systemd 253.
  if (done < 0 && sd_bus_error_has_name(&error, SD_BUS_ERROR_PROPERTY_READ_ONLY)) {
    sd_bus_error_free(&error);
    done = start_unit(bus, wanted, false, &error, awaited.job);
  }
  if (done < 0) return failed("StartTransientUnit", done, &error);
  done = wait_for_job(bus, awaited);
  if (done < 0) return failed("waiting for the scope", done, nullptr);
  sd_bus_flush_close_unref(bus);
  if (awaited.result == "done") return 0;
  printf("the scope's job ended with '%s'\n", awaited.result.c_str());
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 8) {
    fputs("temenos-scope: this program is started by temenos; run 'temenos --help'\n", stderr);
    return 2;
  }
  const auto number = [](const char* text) { return std::strtoull(text, nullptr, 10); };
  const Wanted wanted{argv[2],         static_cast<std::uint32_t>(number(argv[3])),
                      argv[4],         number(argv[5]),
                      number(argv[6]), number(argv[7])};
  return run(argv[1], wanted);
}
