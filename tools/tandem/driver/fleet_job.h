// RolloutFleet::Job: internal to the files of RolloutFleet.
#ifndef TANDEM_TOOLS_TANDEM_DRIVER_FLEET_JOB_H_
#define TANDEM_TOOLS_TANDEM_DRIVER_FLEET_JOB_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "tools/tandem/driver/rollout_fleet.h"

namespace tandem::driver {

// One request: for the samples of a group, or for its baseline.
struct RolloutFleet::Job {
  explicit Job(rollout::v1::GenerateRequest request) : group(std::move(request)) {}

  PartialGroup group;  // owned by the call while one runs, else by the thread that places the job
  absl::Time deadline;
  std::function<void(int64_t)> on_tokens;
  std::function<void(absl::Status, PartialGroup&)> done;
  std::string preferred;  // replica id, or empty
  // Guarded by the fleet's lock.
  std::shared_ptr<Link> link;  // of the replica that runs its call
  std::shared_ptr<grpc::ClientContext> context;
  int64_t cost = 0;
  std::set<std::string> failed_on;  // replica ids
  absl::Status last_error;
  absl::Time not_before = absl::InfinitePast();
  bool is_cancelled = false;
};

}  // namespace tandem::driver

#endif  // TANDEM_TOOLS_TANDEM_DRIVER_FLEET_JOB_H_
