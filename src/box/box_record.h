// What a box with a name is, as its data dir keeps it (temenos-box.json): who it belongs to and its
// policy. Written whole, when the box is made and when its allowlist is edited, by who has the turn
// (store/data_dir.h); nothing that a box could write is ever read here.
//
// Thread-safety: plain values and functions.
#pragma once

#include <string>

#include "temenos/box.h"
#include "temenos/error.h"
#include "temenos/policy.h"

namespace temenos::box {

// kInvalidArgument unless it is 1 to 63 letters, digits, '.', '_', '-', and begins with a letter or
// a digit.
Result<void> check_name(const std::string& name);

// The name of its data dir: a version 5 UUID (RFC 4122) of scope and name, so that making the same
// box twice meets in one rename(2), and no list of names has to be kept.
std::string id_of(const BoxName& name);

struct BoxRecord {
  BoxName name;
  std::string project_dir;  // mounted when not empty
  std::string created;      // RFC 3339, UTC
  Policy policy;
};

std::string to_json(const BoxRecord& record);
Result<BoxRecord> box_record_from_json(std::string_view text);
// In the data dir `directory`.
Result<BoxRecord> read_record(int directory);
Result<void> write_record(int directory, const BoxRecord& record);

}  // namespace temenos::box
