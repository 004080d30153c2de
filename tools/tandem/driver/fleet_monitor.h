// FleetMonitor: a thread that watches the fleet: it has the list of replicas read again and polls
// the replicas that are due, without one delaying another. Polls and responses take several
// packets, like prompts and completions, so a path that loses long packets counts as silence.
#ifndef TANDEM_TOOLS_TANDEM_DRIVER_FLEET_MONITOR_H_
#define TANDEM_TOOLS_TANDEM_DRIVER_FLEET_MONITOR_H_

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "tandem/rollout/v1/rollout_service.grpc.pb.h"
#include "tools/tandem/driver/fleet_membership.h"

namespace tandem::driver {

class FleetMonitor {
 public:
  struct Options {
    absl::Duration period = absl::Milliseconds(100);
    // A poll without a response for this long counts as silence.
    absl::Duration poll_timeout = absl::Seconds(5);
    // Called every period, on the monitor's thread.
    std::function<void()> tick;
    // Returns the replicas to poll now.
    std::function<std::vector<FleetMembership::Poll>()> due;
    // Returns the incarnation of the trainer that the poll is for; 0, or unset: none. A poll is a
    // heartbeat of that trainer's driver.
    std::function<int64_t()> incarnation;
    // Called from one of gRPC's threads.
    std::function<void(const FleetMembership::Poll&,
                       absl::StatusOr<rollout::v1::GetServerInfoResponse>)>
        answered;
  };

  explicit FleetMonitor(Options options);
  // Ends the thread, cancels the outstanding polls, and waits for them to end.
  ~FleetMonitor();

  // Starts the next period now.
  void Wake();

 private:
  struct Call;
  void Loop();
  void StartPoll(const FleetMembership::Poll& poll);
  void Forget(Call* call);

  const Options options_;
  // Used by the thread alone.
  std::map<std::string, std::shared_ptr<rollout::v1::RolloutService::Stub>> stubs_;  // by address

  absl::Mutex mu_;
  bool is_awake_ ABSL_GUARDED_BY(mu_) = true;
  bool is_ending_ ABSL_GUARDED_BY(mu_) = false;
  std::map<Call*, std::shared_ptr<Call>> calls_ ABSL_GUARDED_BY(mu_);  // null: being deleted
  std::thread thread_;
};

}  // namespace tandem::driver

#endif  // TANDEM_TOOLS_TANDEM_DRIVER_FLEET_MONITOR_H_
