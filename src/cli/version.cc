#include <CLI/CLI.hpp>
#include <cstdio>

#include "base/try.h"
#include "box/host_dirs.h"
#include "box/host_probe.h"
#include "cli/command.h"
#include "codec/json.h"

namespace temenos::cli {

void add_version(CLI::App& app, Action& chosen) {
  auto* command = app.add_subcommand("version", "Print the versions of temenos and of its runsc");
  auto json = std::make_shared<bool>(false);
  command->add_flag("--json", *json, "Print one JSON value");
  command->callback([json, &chosen] {
    chosen = [json]() -> Result<int> {
      const auto dirs = TRY(box::host_dirs());
      const auto probe = box::probe_runsc(dirs);
      const std::string runsc = probe ? probe->runsc.version : "";
      if (*json) {
        boost::json::object out{{"temenos", TEMENOS_VERSION}, {"runsc", nullptr}};
        if (probe) out["runsc"] = runsc;
        puts(serialize_json(out).c_str());
      } else {
        printf("temenos %s\nrunsc %s\n", TEMENOS_VERSION, probe ? runsc.c_str() : "not found");
      }
      return 0;
    };
  });
}

}  // namespace temenos::cli
