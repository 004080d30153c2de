// Serves one Generate call: passes the request to the engine and writes its chunks.
#ifndef TANDEM_SERVICES_ROLLOUT_SERVICE_GENERATE_REACTOR_H_
#define TANDEM_SERVICES_ROLLOUT_SERVICE_GENERATE_REACTOR_H_

#include <grpcpp/support/server_callback.h>

#include <cstdint>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "common/http/worker_pool.h"
#include "services/rollout/engine/engine.h"
#include "services/rollout/requests/pending_chunks.h"
#include "services/rollout/requests/rollout_metrics.h"
#include "services/rollout/requests/text_limits.h"
#include "tandem/rollout/v1/rollout_service.pb.h"

namespace tandem::rollout {

// How the texts of requests become tokens. Long ones are tokenized in `pool`, and images read there:
// gRPC's threads also serve health checks and the end of the process.
struct PromptTexts {
  const tokenizer::Tokenizer* tokenizer = nullptr;  // may be null
  TextLimits limits;
  http::WorkerPool* pool = nullptr;
};

// A slow client neither blocks the engine nor queues messages: unwritten tokens wait as one chunk
// per sample. Cancelling the call cancels the request, whatever the reason. Owns itself from
// Start() until both gRPC and the engine are done with it.
class GenerateReactor final : public grpc::ServerWriteReactor<v1::GenerateResponse> {
 public:
  // Returns a reactor for gRPC, which finishes at once if the request is rejected. `metrics` may be
  // null; otherwise it must outlive the call, like the other arguments.
  static GenerateReactor* Start(Engine& engine, const PromptTexts& texts, RolloutMetrics* metrics,
                                const v1::GenerateRequest& request);

  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  GenerateReactor(Engine& engine, RolloutMetrics* metrics) : engine_(engine), observed_(metrics) {}

  // Tokenizes and submits the request, now or in the pool; ends the call if it is rejected.
  void Begin(const PromptTexts& texts, const v1::GenerateRequest& request);
  void Run(const tokenizer::Tokenizer* tokenizer, const v1::GenerateRequest& request);
  absl::Status Submit(const tokenizer::Tokenizer* tokenizer, const v1::GenerateRequest& request);
  void OnChunk(SampleChunk chunk);
  void OnEngineDone(const absl::Status& status);
  // Starts the next write, or finishes, unless a write is in flight.
  void Continue() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  Engine& engine_;
  std::string request_id_;
  bool processed_logprobs_ = false;

  absl::Mutex mu_;
  RolloutMetrics::Request observed_ ABSL_GUARDED_BY(mu_);
  std::shared_ptr<GenerateReactor> self_ ABSL_GUARDED_BY(mu_);  // gRPC's reference
  int64_t handle_ ABSL_GUARDED_BY(mu_) = -1;
  bool cancelled_ ABSL_GUARDED_BY(mu_) = false;
  int64_t num_unfinished_ ABSL_GUARDED_BY(mu_) = 0;  // samples
  PendingChunks pending_ ABSL_GUARDED_BY(mu_);
  v1::GenerateResponse writing_ ABSL_GUARDED_BY(mu_);
  bool is_writing_ ABSL_GUARDED_BY(mu_) = false;
  bool engine_done_ ABSL_GUARDED_BY(mu_) = false;
  bool finished_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status status_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tandem::rollout

#endif  // TANDEM_SERVICES_ROLLOUT_SERVICE_GENERATE_REACTOR_H_
