// What is measured. Each row is a list of blocks; a block is a short time in which ours and theirs
// were measured in turn, and holds the medians of that time. What is made of them (ratio, noise,
// verdict) is report.py's.
#pragma once

#include <functional>
#include <initializer_list>
#include <string>
#include <vector>

#include "temenos/error.h"
#include "tests/bench/subject.h"

namespace temenos::bench {

struct Row {
  std::string id;       // of SPECIFICATION.md, "Numbers"; one that is not there is information
  std::string kind;     // "ratio": ours / theirs; "difference": ours - theirs; "ours"
  std::string unit;     // of both: "ms", "MiB", "MiB/s"
  std::string theirs;   // what is compared with, for people; empty for "ours"
  std::string skipped;  // why it could not be measured; then there are no blocks
  std::vector<double> ours_blocks;
  std::vector<double> theirs_blocks;
  // Of "ours" alone: by what factor a computation took longer than its own CPU time in the block,
  // which is 1 on a machine with nothing else to do.
  std::vector<double> busy_blocks;
};

struct Plan {
  std::shared_ptr<Host> host;
  int blocks = 9;
  std::string only;      // rows whose id begins with this; empty: all
  std::string platform;  // as asked for; empty: whatever temenos chooses
  std::string guest;     // the programs that are run in a box
  std::string net_guest;
  std::string temenos;  // the program
};

struct Measured {
  std::string platform;  // that the boxes ran on
  std::vector<Row> rows;
};

// Whether one of these rows is.
bool wanted(const Plan& plan, std::initializer_list<const char*> ids);
double median(std::vector<double> samples);

// `progress` gets a word at the start of each group.
Result<Measured> measure(const Plan& plan, const std::function<void(const std::string&)>& progress);

}  // namespace temenos::bench
