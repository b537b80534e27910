#include "keeper/id_plan.h"

#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>

#include "base/host_ids.h"
#include "base/text.h"
#include "base/try.h"
#include "sys/file_sys.h"

namespace temenos::keeper {
namespace {

constexpr char kNewUidMap[] = "/usr/bin/newuidmap";
constexpr char kNewGidMap[] = "/usr/bin/newgidmap";

bool parse_number(std::string_view text, unsigned* out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *out);
  return error == std::errc() && end == text.data() + text.size();
}

std::string read_or_empty(const char* path) { return sys::read_path(path, 1u << 20).value_or(""); }

std::vector<std::string> map_command(const char* program, pid_t pid,
                                     const std::vector<sys::IdMapLine>& lines) {
  std::vector<std::string> argv{program, std::to_string(pid)};
  for (const auto& line : lines) {
    argv.push_back(std::to_string(line.inside));
    argv.push_back(std::to_string(line.outside));
    argv.push_back(std::to_string(line.count));
  }
  return argv;
}

Result<void> run_map_command(const std::vector<std::string>& argv) {
  auto result = sys::run_program(argv);
  if (!result) {
    return tl::make_unexpected(
        std::move(result).error().with_hint("see what it does when run by hand"));
  }
  if (result->status.code == 0) return {};
  return fail(Code::kUnsupported,
              argv[0] + " failed: " + result->output.substr(0, result->output.find('\n')),
              "check the range of this user in /etc/subuid and /etc/subgid");
}

}  // namespace

sys::IdMapLine subordinate_range(std::string_view text, std::string_view name, unsigned uid) {
  for (const auto& line : split(text, '\n')) {
    const auto fields = split(line, ':');
    if (fields.size() != 3) continue;
    unsigned owner = 0;
    const bool mine = fields[0] == name || (parse_number(fields[0], &owner) && owner == uid);
    sys::IdMapLine range{1, 0, 0};
    if (mine && parse_number(fields[1], &range.outside) && parse_number(fields[2], &range.count) &&
        range.outside > 0 && range.count > 0) {
      return range;
    }
  }
  return {};
}

IdPlan plan_ids() {
  IdPlan plan;
  const unsigned uid = geteuid();
  const unsigned gid = getegid();
  if (uid == 0) {
    plan.as_root = true;
    plan.range = true;
    plan.uids = {{0, kBoxIdBase, kBoxIdCount}};
    plan.gids = plan.uids;
    return plan;
  }
  plan.uids = {{0, uid, 1}};
  plan.gids = {{0, gid, 1}};
  if (access(kNewUidMap, X_OK) != 0 || access(kNewGidMap, X_OK) != 0) {
    plan.why = "newuidmap is not installed";
    return plan;
  }
  const passwd* user = getpwuid(uid);
  const std::string name = user != nullptr ? user->pw_name : "";
  auto uids = subordinate_range(read_or_empty("/etc/subuid"), name, uid);
  auto gids = subordinate_range(read_or_empty("/etc/subgid"), name, uid);
  if (uids.count == 0 || gids.count == 0) {
    plan.why = "this user has no range in /etc/subuid and /etc/subgid";
    return plan;
  }
  uids.count = std::min(uids.count, kBoxIdCount - 1);
  gids.count = std::min(gids.count, kBoxIdCount - 1);
  plan.range = true;
  plan.uids.push_back(uids);
  plan.gids.push_back(gids);
  return plan;
}

Result<void> apply_ids(const IdPlan& plan, pid_t pid) {
  if (plan.as_root || !plan.range) {
    return sys::write_id_maps(pid, plan.uids, plan.gids, !plan.as_root);
  }
  TRY(run_map_command(map_command(kNewUidMap, pid, plan.uids)));
  return run_map_command(map_command(kNewGidMap, pid, plan.gids));
}

}  // namespace temenos::keeper
