// RewardLines: the output of `tandem reward` for rewards that may fail.
#ifndef TANDEM_TOOLS_TANDEM_COMMANDS_REWARD_LINES_H_
#define TANDEM_TOOLS_TANDEM_COMMANDS_REWARD_LINES_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tandem::commands {

// Rows that are scored together: enough for any concurrency, few enough that rewards show while others
// are under way.
inline constexpr size_t kRewardRowsAtOnce = 256;

// Prints {"reward": R}, or {"reward": null, "error": "..."}, and counts.
class RewardLines {
 public:
  // Call Flush() after the last of several.
  void Print(const absl::StatusOr<double>& reward);
  void Flush() const;

  // UNAVAILABLE, with the first error, if rewards are missing.
  absl::Status Failures() const;

 private:
  int64_t num_rows_ = 0;
  int64_t num_failed_ = 0;
  absl::Status first_;
};

}  // namespace tandem::commands

#endif  // TANDEM_TOOLS_TANDEM_COMMANDS_REWARD_LINES_H_
