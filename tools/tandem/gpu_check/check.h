// A check of `tandem gpu-check` and what it found.
#ifndef TANDEM_TOOLS_TANDEM_GPU_CHECK_CHECK_H_
#define TANDEM_TOOLS_TANDEM_GPU_CHECK_CHECK_H_

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "nlohmann/json.hpp"

namespace tandem::gpu_check {

enum class Outcome { kPassed, kFailed, kSkipped };

struct CheckResult {
  Outcome outcome = Outcome::kPassed;
  std::string reason;                  // of a failure, or why it was skipped
  std::string summary;                 // what the table says of it: "702 TFLOP/s, 2.9 TB/s"
  std::vector<std::string> fell_back;  // what ran in another way than planned, and why
  nlohmann::json measured = nlohmann::json::object();

  // A failure keeps what was measured before it.
  void Fail(std::string why) {
    outcome = Outcome::kFailed;
    reason = std::move(why);
  }
};

inline CheckResult Failed(std::string reason) {
  CheckResult result;
  result.Fail(std::move(reason));
  return result;
}

inline CheckResult Skipped(std::string reason) {
  CheckResult result;
  result.outcome = Outcome::kSkipped;
  result.reason = std::move(reason);
  return result;
}

struct Check {
  std::string name;   // in the JSON file: "log_probs"
  std::string title;  // for people: "trainer against rollout"
  absl::Duration limit;
  // Returns soon after `deadline` at the latest.
  std::function<CheckResult(absl::Time deadline)> run;
  bool is_needed = false;  // if it fails, those after it are skipped
};

// A check that was run, or that was not because of another one.
struct Ran {
  std::string name;
  std::string title;
  double seconds = 0;
  CheckResult result;
};

}  // namespace tandem::gpu_check

#endif  // TANDEM_TOOLS_TANDEM_GPU_CHECK_CHECK_H_
