// The flags that describe a box, the same for every subcommand that makes one, and the Policy they
// amount to.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "temenos/error.h"
#include "temenos/policy.h"

namespace CLI {
class App;
}

namespace temenos::cli {

struct BoxFlags {
  std::string policy_file;
  std::string net;
  bool no_net = false;
  std::vector<std::string> allow_host;
  std::vector<std::string> read;
  std::vector<std::string> write;
  std::vector<std::string> volume;
  std::string image;
  std::optional<std::int64_t> memory, cpu, pids, disk, output, ttl, idle;
  std::optional<double> cpus;
  std::string scratch;
  bool ephemeral = false;
  bool review = false;
  bool no_project = false;
  std::vector<std::string> env;
  std::vector<std::string> secret_file;
  std::string limits;
  std::string enforcement;
  std::string platform;
  std::vector<std::string> allow_danger;

  bool operator==(const BoxFlags&) const = default;
};

void add_box_flags(CLI::App& command, BoxFlags& flags);

// Relative paths are taken from the working directory.
Result<Policy> policy_from_flags(const BoxFlags& flags);

// The project that a box started in the working directory gets; empty: none.
Result<std::string> project_for(const BoxFlags& flags);

}  // namespace temenos::cli
