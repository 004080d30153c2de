// FleetMonitor: a thread that looks after the fleet: it lets the list of replicas be read again,
// and asks the replicas whose turn it is how they are, none of which holds up another. Questions
// and answers take several packets, as prompts and completions do: a path that loses long packets
// counts as silence.
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
    // A question that is unanswered for longer counts as silence.
    absl::Duration poll_timeout = absl::Seconds(5);
    // Every period, on the monitor's thread.
    std::function<void()> tick;
    // Whom to ask now.
    std::function<std::vector<FleetMembership::Poll>()> due;
    // Of the trainer on whose behalf it is asked, 0: of none; unset: none. A question is a
    // heartbeat of its driver.
    std::function<int64_t()> incarnation;
    // From one of gRPC's threads.
    std::function<void(const FleetMembership::Poll&,
                       absl::StatusOr<rollout::v1::GetServerInfoResponse>)>
        answered;
  };

  explicit FleetMonitor(Options options);
  // Ends the thread and waits for the answers that are due.
  ~FleetMonitor();

  // The next period begins now.
  void Wake();

 private:
  struct Question;
  void Loop();
  void Ask(const FleetMembership::Poll& poll);

  const Options options_;
  // Of the thread.
  std::map<std::string, std::shared_ptr<rollout::v1::RolloutService::Stub>> stubs_;  // by address

  absl::Mutex mu_;
  bool is_awake_ ABSL_GUARDED_BY(mu_) = true;
  bool is_ending_ ABSL_GUARDED_BY(mu_) = false;
  std::map<Question*, std::shared_ptr<Question>> questions_ ABSL_GUARDED_BY(mu_);
  std::thread thread_;
};

}  // namespace tandem::driver

#endif  // TANDEM_TOOLS_TANDEM_DRIVER_FLEET_MONITOR_H_
