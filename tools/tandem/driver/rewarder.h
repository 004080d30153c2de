// Rewarder: judges groups with a built-in reward or an external RewardService.
#ifndef TANDEM_TOOLS_TANDEM_DRIVER_REWARDER_H_
#define TANDEM_TOOLS_TANDEM_DRIVER_REWARDER_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tandem/config/v1/run_config.pb.h"
#include "tools/tandem/driver/completion.h"

namespace tandem::driver {

// reward.name of a run that rewards nothing.
inline constexpr char kNoReward[] = "none";

// Thread-safe.
class Rewarder {
 public:
  // INVALID_ARGUMENT unless `name` is a built-in reward, `service` or `none`; lists the known names.
  static absl::Status CheckName(const std::string& name);
  // INVALID_ARGUMENT for an unknown name, a bad pattern, `service` without an endpoint, or `none`.
  static absl::StatusOr<std::unique_ptr<Rewarder>> Create(const config::v1::RewardConfig& config);
  // Whether the configured reward compares with the answers of rows, so that each row needs one. A
  // service reads whole rows.
  static bool NeedsAnswer(const config::v1::RewardConfig& config);
  virtual ~Rewarder() = default;

  // Sets score and reward of every completion, baselines included. The error names the row.
  virtual absl::Status Judge(std::vector<Group>& groups) = 0;
};

// "stop", "length" or "aborted", as in the run's files.
const char* FinishReasonName(common::v1::FinishReason reason);

}  // namespace tandem::driver

#endif  // TANDEM_TOOLS_TANDEM_DRIVER_REWARDER_H_
