// RolloutServiceImpl: gRPC service of the engine.
#ifndef TANDEM_SERVICES_ROLLOUT_SERVICE_ROLLOUT_SERVICE_H_
#define TANDEM_SERVICES_ROLLOUT_SERVICE_ROLLOUT_SERVICE_H_

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "common/http/worker_pool.h"
#include "common/rpc/new_uuid.h"
#include "common/tokenizer/tokenizer.h"
#include "services/rollout/engine/engine.h"
#include "services/rollout/receive/rollout_owner.h"
#include "services/rollout/requests/rollout_metrics.h"
#include "services/rollout/service/generate_reactor.h"
#include "services/rollout/sessions/session_store.h"
#include "tandem/rollout/v1/rollout_service.grpc.pb.h"

namespace tandem::rollout {

// Translates calls: reactors validate, enqueue and return, and the engine thread finishes them. All
// arguments must outlive the service; `tokenizer` may be null.
class RolloutServiceImpl : public v1::RolloutService::CallbackService {
 public:
  // Callbacks into the rest of the process.
  struct Hooks {
    // The version being received, or -1.
    std::function<int64_t()> updating_to;
    // Reloads released weights from their folder and calls `done`; null if they came from a
    // trainer.
    std::function<void(std::function<void(absl::Status)> done)> reload;
    RolloutMetrics* metrics = nullptr;  // records every request; may be null
    RolloutOwner* owner = nullptr;      // gets its driver's heartbeats; may be null
    SessionStore* sessions = nullptr;   // null: no sessions
  };

  RolloutServiceImpl(Engine& engine, const tokenizer::Tokenizer* tokenizer, Hooks hooks)
      : engine_(engine),
        tokenizer_(tokenizer),
        hooks_(std::move(hooks)),
        text_pool_(kTextThreads),
        texts_{tokenizer, MakeTextLimits(engine.limits(), tokenizer), &text_pool_},
        num_parameters_(engine.model().spec().num_parameters()) {}

  // HOST:PORT of every rank of the replica, rank 0 first.
  void SetRankAddresses(std::vector<std::string> addresses);

  grpc::ServerWriteReactor<v1::GenerateResponse>* Generate(
      grpc::CallbackServerContext* context, const v1::GenerateRequest* request) override;
  grpc::ServerUnaryReactor* Abort(grpc::CallbackServerContext* context,
                                  const v1::AbortRequest* request,
                                  v1::AbortResponse* response) override;
  grpc::ServerUnaryReactor* Pause(grpc::CallbackServerContext* context,
                                  const v1::PauseRequest* request,
                                  v1::PauseResponse* response) override;
  grpc::ServerUnaryReactor* Resume(grpc::CallbackServerContext* context,
                                   const v1::ResumeRequest* request,
                                   v1::ResumeResponse* response) override;
  grpc::ServerUnaryReactor* Score(grpc::CallbackServerContext* context,
                                  const v1::ScoreRequest* request,
                                  v1::ScoreResponse* response) override;
  grpc::ServerUnaryReactor* OpenSession(grpc::CallbackServerContext* context,
                                        const v1::OpenSessionRequest* request,
                                        v1::OpenSessionResponse* response) override;
  grpc::ServerUnaryReactor* CloseSession(grpc::CallbackServerContext* context,
                                         const v1::CloseSessionRequest* request,
                                         v1::CloseSessionResponse* response) override;
  grpc::ServerUnaryReactor* GetServerInfo(grpc::CallbackServerContext* context,
                                          const v1::GetServerInfoRequest* request,
                                          v1::GetServerInfoResponse* response) override;

 private:
  // Each may take a few hundred MB for the longest texts.
  static constexpr int kTextThreads = 2;

  v1::RolloutState State(const EngineInfo& info, int64_t updating_to) const;

  Engine& engine_;
  const tokenizer::Tokenizer* tokenizer_;
  const Hooks hooks_;
  http::WorkerPool text_pool_;
  const PromptTexts texts_;
  const int64_t num_parameters_;  // of the whole model
  absl::Mutex mu_;
  std::vector<std::string> rank_addresses_ ABSL_GUARDED_BY(mu_);
  const std::string instance_id_ = rpc::NewUuid();
};

}  // namespace tandem::rollout

#endif  // TANDEM_SERVICES_ROLLOUT_SERVICE_ROLLOUT_SERVICE_H_
