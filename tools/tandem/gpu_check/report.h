// The results of `tandem gpu-check`: a JSON file to send back, and a table for the terminal.
#ifndef TANDEM_TOOLS_TANDEM_GPU_CHECK_REPORT_H_
#define TANDEM_TOOLS_TANDEM_GPU_CHECK_REPORT_H_

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "nlohmann/json.hpp"
#include "tools/tandem/gpu_check/check.h"

namespace tandem::gpu_check {

struct Report {
  std::string version;  // of the program
  absl::Time started;
  double seconds = 0;
  size_t num_checks = 0;  // that are to be run
  std::vector<Ran> ran;
};

// {"format": 1, "tandem", "started" (UTC), "seconds", "complete", "passed",
//  "checks": {NAME: {"outcome": passed | failed | skipped, "seconds", "reason", "fell_back",
//                    "measured"}}}
// "complete": whether all checks have ended; "passed": whether, besides, none failed. "reason" is
// left out for one that passed.
nlohmann::json ToJson(const Report& report);

// A line for each check, and indented ones for what fell back and for the reason of a failure.
std::string Table(const std::vector<Ran>& ran);

}  // namespace tandem::gpu_check

#endif  // TANDEM_TOOLS_TANDEM_GPU_CHECK_REPORT_H_
