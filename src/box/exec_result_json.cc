#include "box/exec_result_json.h"

#include <boost/json/array.hpp>

#include "base/text.h"

namespace temenos {
namespace {

void put_output(boost::json::object& out, const char* name, const std::string& data,
                const Omitted& omitted) {
  if (is_valid_utf8(data)) {
    out[name] = data;
  } else {
    out[std::string(name) + "_base64"] = base64_encode(data);
  }
  if (omitted.bytes == 0) return;
  out[std::string(name) + "_omitted"] = {{"at", omitted.at}, {"bytes", omitted.bytes}};
}

boost::json::value text_or_escaped(const std::string& text) {
  return is_valid_utf8(text) ? boost::json::value(text) : boost::json::value(escape(text));
}

}  // namespace

boost::json::object to_json(const ExecResult& result) {
  boost::json::object out;
  out["exit_code"] =
      result.exit_code ? boost::json::value(*result.exit_code) : boost::json::value();
  out["signal"] = result.signal ? boost::json::value(*result.signal) : boost::json::value();
  out["timed_out"] = result.timed_out;
  out["oom"] = result.oom;
  if (!result.oom_evidence.empty()) out["oom_evidence"] = result.oom_evidence;
  out["truncated"] = result.truncated;
  out["duration_ms"] = result.duration.count();
  put_output(out, "stdout", result.stdout_data, result.stdout_omitted);
  put_output(out, "stderr", result.stderr_data, result.stderr_omitted);
  boost::json::array denials;
  for (const Denial& denial : result.denials) {
    denials.push_back({{"kind", denial.kind},
                       {"target", text_or_escaped(denial.target)},
                       {"rule", denial.rule},
                       {"hint", denial.hint},
                       {"time", denial.time}});
  }
  out["denials"] = std::move(denials);
  boost::json::array left;
  for (const auto pid : result.left_running) left.push_back(pid);
  out["left_running"] = std::move(left);
  if (result.job) out["job"] = *result.job;
  return out;
}

}  // namespace temenos
