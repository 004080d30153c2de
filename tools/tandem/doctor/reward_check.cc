#include "tools/tandem/doctor/reward_check.h"

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "tools/tandem/driver/reward_parts.h"
#include "tools/tandem/driver/rewarder.h"

namespace tandem::doctor {
namespace {

constexpr absl::Duration kServiceWait = absl::Seconds(5);

absl::Status Find(const config::v1::RunConfig& config) {
  absl::StatusOr<std::unique_ptr<driver::Rewarder>> rewarder = driver::Rewarder::Create(config);
  return rewarder.ok() ? (*rewarder)->Check(kServiceWait) : rewarder.status();
}

}  // namespace

void CheckReward(const config::v1::RunConfig& config, Findings& findings) {
  if (config.reward().name() == driver::kNoReward) {
    findings.Ok("reward", "none: tandem sft and tandem dpo evaluate by the loss alone");
    return;
  }
  const absl::Status found = Find(config);
  if (found.ok()) {
    findings.Ok("reward", driver::RewardLabel(config.reward()) + " is there");
  } else {
    // The message of the only reward begins with the same word.
    findings.Fail(
        "reward", std::string(absl::StripPrefix(found.message(), "reward: ")),
        "correct the reward or its keys in the section reward; start the service if it is "
        "one");
  }
}

}  // namespace tandem::doctor
