// What the tandem-rollout process is made of on a rank other than 0 of its replica: it receives its
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
#include "common/rpc/server.h"
#include "common/telemetry/metrics_server.h"
#include "services/rollout/engine/arena_store.h"
#include "services/rollout/ranks/rank_follower.h"
#include "services/rollout/receive/weight_receiver.h"
#include "services/rollout/receive/weight_service.h"
#include "services/rollout/service/replica_ranks.h"
#include "services/rollout/service/rollout_process.h"

namespace tandem::rollout {

// Start() and the rest are the main thread's.
class FollowerProcess {
 public:
  // `options` as those of rank 0. Serves the WeightService when it returns. options.on_failed is
  // called also where rank 0 has said stop.
  static absl::StatusOr<std::unique_ptr<FollowerProcess>> Start(
      const RolloutProcessOptions& options);
  ~FollowerProcess();

  // Waits for rank 0 to say stop, which it does when it has drained: at most `grace`. Then stops,
  // and says why the ranks lost one another where they did.
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
  std::unique_ptr<telemetry::MetricsServer> metrics_server_;  // may be null
  absl::Notification ended_;                                  // with end_
  absl::Status end_;
  std::thread thread_;
};

}  // namespace tandem::rollout

#endif  // TANDEM_SERVICES_ROLLOUT_SERVICE_FOLLOWER_PROCESS_H_
