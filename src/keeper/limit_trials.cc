#include "keeper/limit_trials.h"

#include <signal.h>
#include <sys/signalfd.h>

#include <cstdio>
#include <iterator>

#include "base/try.h"
#include "base/unique_fd.h"
#include "codec/object_reader.h"

namespace temenos::keeper {
namespace {

namespace json = boost::json;

constexpr std::size_t kMaxText = 64 * 1024;

Result<cgroup::Trial> read_trial(const json::value& value) {
  auto reader = TRY(ObjectReader::of(value, "trials"));
  cgroup::Trial trial;
  trial.driver = cgroup::driver_named(TRY(reader.string("driver")));
  trial.controls.memory = TRY(reader.optional_bool("memory")).value_or(false);
  trial.controls.cpu = TRY(reader.optional_bool("cpu")).value_or(false);
  trial.controls.tasks = TRY(reader.optional_bool("tasks")).value_or(false);
  trial.why = TRY(reader.string("why"));
  trial.fix = TRY(reader.string("fix"));
  trial.no_answer = TRY(reader.optional_bool("no_answer")).value_or(false);
  TRY(reader.finish());
  return trial;
}

}  // namespace

std::string trials_to_json(const std::vector<cgroup::Trial>& trials) {
  json::array list;
  for (const auto& trial : trials) {
    list.push_back(json::object{{"driver", cgroup::driver_name(trial.driver)},
                                {"memory", trial.controls.memory},
                                {"cpu", trial.controls.cpu},
                                {"tasks", trial.controls.tasks},
                                {"why", trial.why},
                                {"fix", trial.fix},
                                {"no_answer", trial.no_answer}});
  }
  return serialize_json(json::object{{"trials", std::move(list)}});
}

Result<std::vector<cgroup::Trial>> trials_from_json(std::string_view text) {
  const auto document = TRY(parse_json(text, {.max_bytes = kMaxText}));
  auto reader = TRY(ObjectReader::of(document, ""));
  std::vector<cgroup::Trial> trials;
  const json::array* list = TRY(reader.optional_array("trials", std::size(cgroup::kDrivers)));
  if (list == nullptr) return trials;
  for (const auto& value : *list) trials.push_back(TRY(read_trial(value)));
  TRY(reader.finish());
  return trials;
}

int try_limits_main(const std::string& scope_program) {
  sigset_t term;
  sigemptyset(&term);
  sigaddset(&term, SIGTERM);
  sigprocmask(SIG_BLOCK, &term, nullptr);
  const UniqueFd stop(signalfd(-1, &term, SFD_CLOEXEC));
  const auto trials = cgroup::try_drivers(scope_program, stop.get());
  return puts(trials_to_json(trials).c_str()) < 0 ? 1 : 0;
}

}  // namespace temenos::keeper
