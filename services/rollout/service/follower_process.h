// FollowerProcess: the tandem-rollout process on a replica's rank other than 0. It receives its
// part of the weights from trainer or folder, and computes what rank 0 orders.
#ifndef TANDEM_SERVICES_ROLLOUT_SERVICE_FOLLOWER_PROCESS_H_
#define TANDEM_SERVICES_ROLLOUT_SERVICE_FOLLOWER_PROCESS_H_

#include <memory>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "common/metrics/metrics_server.h"
#include "common/rpc/server.h"
#include "services/rollout/engine/arena_store.h"
#include "services/rollout/ranks/rank_follower.h"
#include "services/rollout/receive/weight_receiver.h"
#include "services/rollout/receive/weight_service.h"
#include "services/rollout/service/replica_ranks.h"
#include "services/rollout/service/rollout_process.h"

namespace tandem::rollout {

// Only for the main thread.
class FollowerProcess {
 public:
  // `options` must match rank 0's. Serves the WeightService once it returns. Also calls
  // options.on_failed when rank 0 sends stop.
  static absl::StatusOr<std::unique_ptr<FollowerProcess>> Start(
      const RolloutProcessOptions& options);
  ~FollowerProcess();

  // Waits at most `grace` for rank 0 to send stop, which it does after draining. Then stops, and
  // returns the cause if the ranks lost one another.
  absl::Status End(absl::Duration grace);

 private:
  FollowerProcess() = default;
  absl::Status Build(const RolloutProcessOptions& options);
  void Stop();

  std::unique_ptr<ReplicaRanks> ranks_;
  std::unique_ptr<model::Transformer> model_;
  std::unique_ptr<RankFollower> follower_;
  std::unique_ptr<ArenaStore> store_;
  std::unique_ptr<WeightReceiver> receiver_;
  std::unique_ptr<WeightServiceImpl> weight_service_;
  std::unique_ptr<probe::DiagnosticsServiceImpl> diagnostics_;
  std::unique_ptr<rpc::Server> server_;
  std::unique_ptr<metrics::MetricsServer> metrics_server_;  // may be null
  absl::Notification ended_;                                // guards end_
  absl::Status end_;
  std::thread thread_;
};

}  // namespace tandem::rollout

#endif  // TANDEM_SERVICES_ROLLOUT_SERVICE_FOLLOWER_PROCESS_H_
