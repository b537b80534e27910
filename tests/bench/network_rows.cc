#include "tests/bench/network_rows.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <optional>
#include <sstream>

#include "base/try.h"
#include "egress/plan.h"
#include "sys/file_sys.h"
#include "tests/bench/net_server.h"
#include "tests/bench/processes.h"
#include "tests/bench/runsc_inside.h"

namespace temenos::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr char kGuestInBox[] = "/root/net-guest";
constexpr std::size_t kMaxGuest = 16 << 20;
constexpr double kMiB = 1 << 20;
constexpr double kGiB = 1 << 30;
constexpr std::uint64_t kStreamBytes = 48 << 20;
constexpr std::uint64_t kStreams = 64;
constexpr int kConnections = 128;  // of the rows that count them
constexpr int kRequests = 500;
constexpr int kFirsts = 64;
constexpr int kHeld = 1000;

// Half as many blocks as elsewhere: each holds all four ways, and the promises are wide.
int blocks_of(const Plan& plan) { return (plan.blocks + 1) / 2; }

// A way from a client in a sandbox to the server.
struct Way {
  std::string address;
  std::uint16_t port = 0;
  std::string host;  // what an HTTP client says
  std::function<Result<std::string>(const std::vector<std::string>&)> run;
};

// What a client has measured, as it prints it.
Result<std::vector<double>> ask(const Way& way, const std::string& mode,
                                const std::vector<std::string>& more) {
  std::vector<std::string> argv{kGuestInBox, mode, way.address, std::to_string(way.port)};
  argv.insert(argv.end(), more.begin(), more.end());
  std::istringstream text(TRY(way.run(argv)));
  std::vector<double> out;
  for (double value = 0; text >> value;) out.push_back(value);
  if (out.empty()) return fail(Code::kInternal, "the client printed nothing", "run it by hand");
  return out;
}

// All that the rows need: a filtered box; in its namespaces a second sandbox with the same stack
// and no front, whose other end is the server or the forwarder; and a box with the host's network.
struct Bed {
  Child server;
  Child forwarder;
  Subject filtered;
  Subject with_host_network;
  RunscInside runsc;
  Way ours, stack, forwarded, host;

  static Result<Bed> open(const Plan& plan);
};

Result<std::string> address_of_host(Subject& box) {
  std::string found =
      TRY(box.exec({"/usr/bin/getent", "ahostsv4", std::string(egress::kHostName)}));
  return found.substr(0, found.find(' '));
}

Result<Bed> Bed::open(const Plan& plan) {
  const Listening at_home = TRY(listen_at("127.0.0.1"));
  const std::string guest = TRY(sys::read_path(plan.net_guest, kMaxGuest));
  const Policy policy = TRY(plan.host->filtered(at_home.port));
  const auto before = descendants();
  auto filtered = TRY(Subject::start(*plan.host, policy));
  std::set<pid_t> made;
  for (const pid_t pid : descendants()) {
    if (!before.contains(pid)) made.insert(pid);
  }
  TRY(filtered.write(kGuestInBox, guest, 0755));
  auto runsc = TRY(RunscInside::enter(TRY(sort_processes(made)).runsc_run));
  const auto there = TRY(runsc.enter_plain_network());
  TRY(runsc.run_second());
  auto with_host_network = TRY(Subject::start(*plan.host, plan.host->with_host_network));
  TRY(with_host_network.write(kGuestInBox, guest, 0755));
  auto server = TRY(start_server(at_home.fd.get(), there[0].fd.get()));
  auto forwarder = TRY(start_forwarder(there[1].fd.get(), at_home.port));
  const std::string name(egress::kHostName);
  const std::string ours = TRY(address_of_host(filtered));
  return Bed{std::move(server),
             std::move(forwarder),
             std::move(filtered),
             std::move(with_host_network),
             std::move(runsc),
             {ours, at_home.port, name + ":" + std::to_string(at_home.port), {}},
             {RunscInside::kPeer, there[0].port, "peer", {}},
             {RunscInside::kPeer, there[1].port, "peer", {}},
             {"127.0.0.1", at_home.port, "localhost", {}}};
}

// How a number of a client becomes a row's.
struct Measure {
  std::string mode;
  std::vector<std::string> more;
  struct Part {
    std::string id;  // of the row; "_host" and so on are put behind
    const char* unit;
    double scale;  // of nanoseconds
    bool difference;
  };
  std::vector<Part> parts;  // of what the client prints, in its order
};

std::vector<Measure> measures() {
  const double per_stream = kGiB / static_cast<double>(kStreamBytes) / 1e9;
  const std::string each = std::to_string(kStreamBytes / kStreams);
  const std::string connections = std::to_string(kConnections);
  return {
      {"streams",
       {"1", std::to_string(kStreamBytes)},
       {{"net_stream", "s/GiB", per_stream, false}}},
      {"streams",
       {std::to_string(kStreams), each},
       {{"net_streams_64", "s/GiB", per_stream, false}}},
      {"plain", {connections}, {{"net_connect", "ms", 1e-6 / kConnections, false}}},
      {"http", {connections}, {{"net_http", "ms", 1e-6 / kConnections, false}}},
      {"requests",
       {std::to_string(kRequests)},
       {{"net_request", "ms", 1e-6, true}, {"net_request_p99", "ms", 1e-6, true}}},
      {"firsts",
       {std::to_string(kFirsts)},
       {{"net_first", "ms", 1e-6, true}, {"net_first_p99", "ms", 1e-6, true}}},
  };
}

struct Other {
  const char* suffix;
  const char* what;
  const Way Bed::* way;
};
constexpr Other kOthers[] = {{"", "the same stack, no egress", &Bed::stack},
                             {"_forwarder", "a plain forwarder", &Bed::forwarded},
                             {"_host", "--net host", &Bed::host}};

Result<void> one_measure(const Plan& plan, const Bed& bed, const Measure& measure,
                         std::vector<Row>& rows) {
  const std::size_t first = rows.size();
  for (const auto& part : measure.parts) {
    for (const auto& other : kOthers) {
      rows.push_back({.id = part.id + other.suffix,
                      .kind = part.difference ? "difference" : "ratio",
                      .unit = part.unit,
                      .theirs = other.what});
    }
  }
  const auto numbers = [&](const Way& way) {
    auto more = measure.more;
    if (measure.mode == "http") more.push_back(way.host);
    return ask(way, measure.mode, more);
  };
  // The first round is thrown away: caches, buffers that grow, the name's first look-up.
  for (int block = -1; block < blocks_of(plan); ++block) {
    const auto ours = TRY(numbers(bed.ours));
    std::size_t other_at = 0;
    for (const auto& other : kOthers) {
      const auto theirs = TRY(numbers(bed.*other.way));
      for (std::size_t i = 0; i < measure.parts.size() && block >= 0; ++i) {
        Row& row = rows[first + i * std::size(kOthers) + other_at];
        row.ours_blocks.push_back(ours.at(i) * measure.parts[i].scale);
        row.theirs_blocks.push_back(theirs.at(i) * measure.parts[i].scale);
      }
      ++other_at;
    }
  }
  return {};
}

// front and dialer, idle and with connections open, beside what the box takes anyway.
Result<void> memory(const Plan& plan, std::vector<Row>& rows) {
  Row idle{.id = "net_memory", .kind = "ratio", .unit = "MiB", .theirs = "sandbox and gofer"};
  Row held{.id = "net_memory_1000", .kind = "ours", .unit = "MiB"};
  const Listening server = TRY(listen_at("127.0.0.1"));
  const Child serving = TRY(start_server(server.fd.get(), -1));
  const auto before = descendants();
  const Policy policy = TRY(plan.host->filtered(server.port));
  auto box = TRY(Subject::start(*plan.host, policy));
  TRY(box.write(kGuestInBox, TRY(sys::read_path(plan.net_guest, kMaxGuest)), 0755));
  std::set<pid_t> made;
  for (const pid_t pid : descendants()) {
    if (!before.contains(pid)) made.insert(pid);
  }
  auto ours = of_program(made, "temenos-front");
  const auto dialer = of_program(made, "temenos-dialer");
  ours.insert(ours.end(), dialer.begin(), dialer.end());
  if (ours.size() != 2) {
    return fail(Code::kInternal, "front and dialer are not to be found",
                "adapt tests/bench/processes.cc to how boxes are started");
  }
  const auto bytes = pss_bytes(ours);
  if (!bytes && bytes.error().code == Code::kUnsupported) {
    idle.skipped = held.skipped = bytes.error().what;
  } else {
    const auto at_rest = static_cast<double>(TRY(bytes));
    const auto two = static_cast<double>(TRY(pss_bytes(TRY(sort_processes(made)).two)));
    idle.ours_blocks.push_back(at_rest / kMiB);
    idle.theirs_blocks.push_back(two / kMiB);
    const Way way{TRY(address_of_host(box)), server.port, "",
                  [&box](const auto& argv) { return box.exec(argv); }};
    TRY(ask(way, "hold", {std::to_string(kHeld)}));
    held.ours_blocks.push_back((static_cast<double>(TRY(pss_bytes(ours))) - at_rest) / kMiB * 1000 /
                               kHeld);
  }
  TRY(box.stop());
  rows.push_back(std::move(idle));
  rows.push_back(std::move(held));
  return {};
}

Result<double> create_and_exec(Host& host, const Policy& policy) {
  const auto begin = Clock::now();
  auto box = TRY(Subject::start(host, policy));
  TRY(box.exec({"/bin/true"}));
  const std::chrono::duration<double, std::milli> done = Clock::now() - begin;
  TRY(box.stop());
  return done.count();
}

// A box's start and first exec, with a filtered network and with none.
Result<void> create(const Plan& plan, std::vector<Row>& rows) {
  constexpr int kPerBlock = 2;
  Row row{.id = "net_create", .kind = "ratio", .unit = "ms", .theirs = "--no-net"};
  const Policy policy = TRY(plan.host->filtered(1));
  for (int block = 0; block < blocks_of(plan); ++block) {
    std::vector<double> ours;
    std::vector<double> theirs;
    for (int i = 0; i < kPerBlock; ++i) {
      ours.push_back(TRY(create_and_exec(*plan.host, policy)));
      theirs.push_back(TRY(create_and_exec(*plan.host, plan.host->policy)));
    }
    row.ours_blocks.push_back(median(ours));
    row.theirs_blocks.push_back(median(theirs));
  }
  rows.push_back(std::move(row));
  return {};
}

}  // namespace

Result<void> network_rows(const Plan& plan, std::vector<Row>& rows) {
  if (wanted(plan, {"net_memory", "net_memory_1000"})) TRY(memory(plan, rows));
  if (wanted(plan, {"net_create"})) TRY(create(plan, rows));
  std::optional<Bed> bed;
  for (const auto& measure : measures()) {
    const bool needed =
        std::any_of(measure.parts.begin(), measure.parts.end(),
                    [&](const auto& part) { return wanted(plan, {part.id.c_str()}); });
    if (!needed) continue;
    if (!bed) {
      bed.emplace(TRY(Bed::open(plan)));
      bed->ours.run = [&bed](const auto& argv) { return bed->filtered.exec(argv); };
      bed->host.run = [&bed](const auto& argv) { return bed->with_host_network.exec(argv); };
      bed->stack.run = [&bed](const auto& argv) { return bed->runsc.exec_in_second(argv); };
      bed->forwarded.run = bed->stack.run;
    }
    TRY(one_measure(plan, *bed, measure, rows));
  }
  if (!bed) return {};
  TRY(bed->runsc.remove());
  TRY(bed->with_host_network.stop());
  return bed->filtered.stop();
}

}  // namespace temenos::bench
