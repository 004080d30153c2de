// What the tandem-rollout process is made of, from its configuration to its orderly end.
#ifndef TANDEM_SERVICES_ROLLOUT_SERVICE_ROLLOUT_PROCESS_H_
#define TANDEM_SERVICES_ROLLOUT_SERVICE_ROLLOUT_PROCESS_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/model/transformer.h"
#include "common/rpc/server.h"
#include "common/tokenizer/tokenizer.h"
#include "services/rollout/engine/arena_store.h"
#include "services/rollout/engine/engine.h"
#include "services/rollout/receive/weight_receiver.h"
#include "services/rollout/receive/weight_service.h"
#include "services/rollout/service/rollout_service.h"
#include "tandem/config/v1/run_config.pb.h"

namespace tandem::rollout {

struct RolloutProcessOptions {
  config::v1::RunConfig config;  // with every default stated
  std::string listen = "127.0.0.1:0";
  std::string ready_file;      // none where empty
  bool commit_folder = false;  // makes the weights of config.model.path live as version 0
};

// A rollout replica that serves. Start() and Drain() are the main thread's.
class RolloutProcess {
 public:
  // Serves when it returns, and holds the folder's weights where it was asked to commit them. Sets
  // the process's number of threads.
  static absl::StatusOr<std::unique_ptr<RolloutProcess>> Start(
      const RolloutProcessOptions& options);
  ~RolloutProcess();

  const std::string& address() const { return server_->address(); }

  // Turns health, refuses new requests, lets those in flight finish for most of `grace`, hands the
  // rest back as they are, and stops.
  void Drain(absl::Duration grace);

 private:
  RolloutProcess() = default;
  absl::Status Build(const RolloutProcessOptions& options);

  absl::Duration grace_ = absl::ZeroDuration();
  std::unique_ptr<model::Transformer> model_;
  std::unique_ptr<tokenizer::Tokenizer> tokenizer_;  // may be null
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<ArenaStore> store_;
  std::unique_ptr<WeightReceiver> receiver_;
  std::unique_ptr<WeightServiceImpl> weight_service_;
  std::unique_ptr<RolloutServiceImpl> rollout_service_;
  std::unique_ptr<rpc::Server> server_;
};

}  // namespace tandem::rollout

#endif  // TANDEM_SERVICES_ROLLOUT_SERVICE_ROLLOUT_PROCESS_H_
