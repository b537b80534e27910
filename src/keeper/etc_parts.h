// What a box on base `host` gets as /etc: some of it generated, some of it the host's, never the
// host's whole.
#pragma once

#include <string>
#include <vector>

#include "temenos/policy.h"

namespace temenos::keeper {

// Directories and files of the host's /etc that programs need and that hold no secret, read-only. A
// rule for adding one: it is world-readable by Debian's policy, and it holds neither credentials
// nor host identity.
extern const std::vector<std::string> kHostEtc;

struct GeneratedFile {
  std::string name;
  std::string content;
};
std::vector<GeneratedFile> generated_etc(const std::string& hostname, NetworkMode network);

}  // namespace temenos::keeper
