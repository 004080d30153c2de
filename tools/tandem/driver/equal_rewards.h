// EqualRewards: says when the rewards of many steps in a row tell no completion from another, so
// that the policy learns nothing: a reward that never matches, or always does.
#ifndef TANDEM_TOOLS_TANDEM_DRIVER_EQUAL_REWARDS_H_
#define TANDEM_TOOLS_TANDEM_DRIVER_EQUAL_REWARDS_H_

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tandem/config/v1/run_config.pb.h"
#include "tools/tandem/driver/completion.h"
#include "tools/tandem/driver/reward_parts.h"
#include "tools/tandem/driver/run_folder.h"

namespace tandem::driver {

// Used by the loop's thread.
class EqualRewards {
 public:
  // `note` receives a line after 5, 10, 20, ... such steps in a row.
  EqualRewards(const config::v1::RunConfig& config, std::function<void(const std::string&)> note)
      : reward_(RewardLabel(config.reward())),
        estimator_(config.algorithm().adv_estimator()),
        note_(std::move(note)) {}

  // Adds rollout/equal_reward_groups: the groups of several samples whose rewards are all equal,
  // with gdpo in every part. A step without signal has only such groups; if groups have one sample, all of its rewards are
  // equal.
  void OnStep(int64_t step, const std::vector<Group>& groups, Metrics& metrics);

 private:
  static constexpr int64_t kFirstNote = 5;

  void Note(int64_t step, const std::vector<Group>& groups) const;

  const std::string reward_;
  const config::v1::AdvEstimator estimator_;
  const std::function<void(const std::string&)> note_;
  int64_t in_a_row_ = 0;
  int64_t next_note_ = kFirstNote;
};

}  // namespace tandem::driver

#endif  // TANDEM_TOOLS_TANDEM_DRIVER_EQUAL_REWARDS_H_
