// Serves one Score call.
#ifndef TANDEM_SERVICES_ROLLOUT_SERVICE_SCORE_REACTOR_H_
#define TANDEM_SERVICES_ROLLOUT_SERVICE_SCORE_REACTOR_H_

#include <grpcpp/support/server_callback.h>

#include <cstdint>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/http/worker_pool.h"
#include "services/rollout/engine/engine.h"
#include "tandem/rollout/v1/rollout_service.pb.h"

namespace tandem::rollout {

// Owns itself, like GenerateReactor.
class ScoreReactor final : public grpc::ServerUnaryReactor {
 public:
  // Images are read in `pool`. Engine and pool must outlive the call.
  static ScoreReactor* Start(Engine& engine, http::WorkerPool& pool,
                             const v1::ScoreRequest& request, v1::ScoreResponse* response);

  void OnCancel() override;
  void OnDone() override;

 private:
  ScoreReactor(Engine& engine, v1::ScoreResponse* response)
      : engine_(engine), response_(response) {}
  // Reads the images and submits the request, or finishes the call.
  void Run(const v1::ScoreRequest& request);
  absl::Status Submit(const v1::ScoreRequest& request);
  void OnScore(const absl::StatusOr<ScoreResult>& result);

  Engine& engine_;
  v1::ScoreResponse* const response_;
  absl::Mutex mu_;
  std::shared_ptr<ScoreReactor> self_ ABSL_GUARDED_BY(mu_);  // gRPC's reference
  int64_t handle_ ABSL_GUARDED_BY(mu_) = -1;
  bool cancelled_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace tandem::rollout

#endif  // TANDEM_SERVICES_ROLLOUT_SERVICE_SCORE_REACTOR_H_
