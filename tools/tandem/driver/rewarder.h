// Rewarder: judges groups with the configured reward, or with the weighted sum of several.
#ifndef TANDEM_TOOLS_TANDEM_DRIVER_REWARDER_H_
#define TANDEM_TOOLS_TANDEM_DRIVER_REWARDER_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tandem/config/v1/run_config.pb.h"
#include "tools/tandem/driver/completion.h"
#include "tools/tandem/driver/served_folder.h"

namespace tandem::driver {

// How long a run waits for a RewardService to answer before it starts.
inline constexpr absl::Duration kRewardServiceWait = absl::Seconds(60);

// Thread-safe.
class Rewarder {
 public:
  // Starts no process and connects nowhere. What Python functions print is appended to `log_path`;
  // empty: this process's stderr. Once `interrupted`, which may be null, is true, requests to judges
  // and reward models end. INVALID_ARGUMENT for an unknown name, a bad pattern, `service` without an endpoint, `none`,
  // or what else is wrong with a reward; names the key.
  static absl::StatusOr<std::unique_ptr<Rewarder>> Create(
      const config::v1::RunConfig& config, const std::string& log_path = "",
      std::function<bool()> interrupted = nullptr);
  virtual ~Rewarder() = default;

  // Finds out whether every reward is there: loads Python files, calls services without completions,
  // asks judges for a judgement, and looks at the folders of reward models, waiting up to `timeout` for
  // each. Errors name the reward's key; CANCELLED soon after `interrupted` is true.
  virtual absl::Status Check(absl::Duration /*timeout*/,
                             const std::function<bool()>& /*interrupted*/ = nullptr) {
    return absl::OkStatus();
  }

  // The folders of reward models without an endpoint, each to be served by a rollout; Connect() before
  // Judge().
  virtual std::vector<ServedFolder> served_folders() const { return {}; }

  // Uses the rollouts that serve them. Errors: those of ModelReward::Connect(), with the key.
  virtual absl::Status Connect(const AddressOfServed& /*address_of*/,
                               const std::function<bool()>& /*interrupted*/ = nullptr) {
    return absl::OkStatus();
  }

  // Sets score and reward of every completion, baselines included, and the scores of each of several
  // rewards; or the group's `judgement`, if a judge or a reward model fails. The error names the row.
  virtual absl::Status Judge(std::vector<Group>& groups) = 0;
};

}  // namespace tandem::driver

#endif  // TANDEM_TOOLS_TANDEM_DRIVER_REWARDER_H_
