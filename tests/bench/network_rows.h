// The rows of a filtered network: the same clients and the same server in four ways, measured in
// turn (docs/benchmarks.md).
#pragma once

#include "tests/bench/rows.h"

namespace temenos::bench {

Result<void> network_rows(const Plan& plan, std::vector<Row>& rows);

}  // namespace temenos::bench
