// RolloutProcess: the tandem-rollout process, from its configuration to its orderly shutdown.
#ifndef TANDEM_SERVICES_ROLLOUT_SERVICE_ROLLOUT_PROCESS_H_
#define TANDEM_SERVICES_ROLLOUT_SERVICE_ROLLOUT_PROCESS_H_

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/comm/launch_environment.h"
#include "common/metrics/metrics_server.h"
#include "common/model/transformer.h"
#include "common/probe/diagnostics_service.h"
#include "common/rpc/server.h"
#include "common/tokenizer/tokenizer.h"
#include "services/rollout/engine/arena_store.h"
#include "services/rollout/engine/engine.h"
#include "services/rollout/openai/openai_server.h"
#include "services/rollout/ranks/rank_leader.h"
#include "services/rollout/receive/rollout_owner.h"
#include "services/rollout/receive/weight_receiver.h"
#include "services/rollout/receive/weight_service.h"
#include "services/rollout/requests/rollout_metrics.h"
#include "services/rollout/service/replica_ranks.h"
#include "services/rollout/service/rollout_service.h"
#include "tandem/config/v1/run_config.pb.h"

namespace tandem::rollout {

inline constexpr char kRolloutServiceName[] = "tandem.rollout.v1.RolloutService";
inline constexpr char kWeightServiceName[] = "tandem.rollout.v1.WeightService";

struct RolloutProcessOptions {
  config::v1::RunConfig config;  // with all defaults filled in
  std::string listen = "127.0.0.1:0";
  std::string health_listen;     // empty: none
  std::string ready_file;        // empty: none
  std::string metrics;           // HOST:PORT to serve metrics on; empty: none
  openai::OpenAiOptions openai;  // an HTTP endpoint beside gRPC
  bool commit_folder = false;    // makes the weights of config.model.path live as version 0
  // This rank's place in a replica of several tensor-parallel ranks. Ignored with one.
  comm::LaunchEnvironment environment;
  // Called on another thread when the ranks of the replica have lost one another: this process is
  // then useless.
  std::function<void()> on_failed;
};

// A serving rollout replica. Only the main thread calls Start() and Drain().
class RolloutProcess {
 public:
  // Serves once it returns, with the folder's weights live if options.commit_folder. Sets the
  // process's number of threads.
  static absl::StatusOr<std::unique_ptr<RolloutProcess>> Start(
      const RolloutProcessOptions& options);
  ~RolloutProcess();

  const std::string& address() const { return server_->address(); }
  // The OpenAI-compatible endpoint, or null.
  const openai::OpenAiServer* openai_server() const { return openai_server_.get(); }
  // True if the ranks have lost one another.
  bool failed() const { return failed_.load(); }

  // Sets health to not serving, rejects new requests, lets those in flight finish for most of
  // `grace`, then returns the rest as they are, and stops.
  void Drain(absl::Duration grace);

 private:
  RolloutProcess() = default;
  absl::Status Build(const RolloutProcessOptions& options);
  // Reloads the folder's weights after their release; calls `done` when they are live.
  void Reload(const std::string& path, std::function<void(absl::Status)> done);

  absl::Duration grace_ = absl::ZeroDuration();
  std::atomic<bool> failed_{false};
  std::unique_ptr<ReplicaRanks> ranks_;  // null with one rank
  std::unique_ptr<RankLeader> leader_;
  std::unique_ptr<model::Transformer> model_;
  std::unique_ptr<tokenizer::Tokenizer> tokenizer_;  // may be null
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<ArenaStore> store_;
  RolloutOwner owner_;
  std::unique_ptr<WeightReceiver> receiver_;
  std::unique_ptr<WeightServiceImpl> weight_service_;
  std::shared_ptr<RolloutMetrics> metrics_;
  SessionStore sessions_;
  std::unique_ptr<RolloutServiceImpl> rollout_service_;
  std::unique_ptr<probe::DiagnosticsServiceImpl> diagnostics_;
  std::unique_ptr<rpc::Server> server_;
  std::unique_ptr<openai::OpenAiServer> openai_server_;     // may be null
  std::unique_ptr<metrics::MetricsServer> metrics_server_;  // may be null
};

}  // namespace tandem::rollout

#endif  // TANDEM_SERVICES_ROLLOUT_SERVICE_ROLLOUT_PROCESS_H_
