// GenerationCalls: engine requests whose tokens one thread waits for.
//
//   GenerationCalls calls(engine, metrics);
//   RETURN_IF_ERROR(calls.Add(request, /*first_choice=*/0));
//   while (true) {
//     ASSIGN_OR_RETURN(const auto news, calls.Next(absl::Now() + absl::Milliseconds(250)));
//     if (news.chunk.has_value()) Send(*news.chunk);
//     if (news.done) break;
//   }
#ifndef TANDEM_SERVICES_ROLLOUT_OPENAI_GENERATION_CALLS_H_
#define TANDEM_SERVICES_ROLLOUT_OPENAI_GENERATION_CALLS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "services/rollout/engine/engine.h"
#include "services/rollout/requests/pending_chunks.h"
#include "services/rollout/requests/rollout_metrics.h"

namespace tandem::rollout::openai {

// Used by one thread. Destruction cancels unfinished requests.
class GenerationCalls {
 public:
  // `metrics` may be null; both must outlive the engine requests.
  GenerationCalls(Engine& engine, RolloutMetrics* metrics) : engine_(engine), metrics_(metrics) {}
  // Cancels unfinished requests.
  ~GenerationCalls();
  GenerationCalls(const GenerationCalls&) = delete;
  GenerationCalls& operator=(const GenerationCalls&) = delete;

  // Submits a request, whose sample k is choice first_choice + k. Errors: Engine::Submit().
  absl::Status Add(GenerationRequest request, int32_t first_choice);

  struct News {
    std::optional<SampleChunk> chunk;  // its index is the choice's
    bool done = false;                 // no more chunks follow
  };
  // Returns all available tokens of a choice, or nothing at `until`. After a request fails, always
  // returns its error.
  absl::StatusOr<News> Next(absl::Time until);

 private:
  // Outlives the object while the engine still refers to it.
  struct State {
    absl::Mutex mu;
    PendingChunks pending ABSL_GUARDED_BY(mu);
    int num_running ABSL_GUARDED_BY(mu) = 0;
    bool abandoned ABSL_GUARDED_BY(mu) = false;
    absl::Status status ABSL_GUARDED_BY(mu);
  };

  Engine& engine_;
  RolloutMetrics* const metrics_;
  const std::shared_ptr<State> state_ = std::make_shared<State>();
  std::vector<int64_t> handles_;
};

}  // namespace tandem::rollout::openai

#endif  // TANDEM_SERVICES_ROLLOUT_OPENAI_GENERATION_CALLS_H_
