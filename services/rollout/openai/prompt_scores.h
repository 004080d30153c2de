// PromptScores: log-probs of the prompts' own tokens, for `echo`.
#ifndef TANDEM_SERVICES_ROLLOUT_OPENAI_PROMPT_SCORES_H_
#define TANDEM_SERVICES_ROLLOUT_OPENAI_PROMPT_SCORES_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "services/rollout/engine/engine.h"

namespace tandem::rollout::openai {

// Used by one thread. Destruction cancels unfinished scores.
class PromptScores {
 public:
  explicit PromptScores(Engine& engine) : engine_(engine) {}
  ~PromptScores();
  PromptScores(const PromptScores&) = delete;
  PromptScores& operator=(const PromptScores&) = delete;

  // Errors: Engine::Score().
  absl::Status Add(const std::vector<int32_t>& prompt_ids, int32_t num_top_logprobs);

  // Returns true when all scores are ready, false at `until`; or the first error.
  absl::StatusOr<bool> Wait(absl::Time until);

  // Takes the scores in the order of Add(). Call after Wait() returned true.
  std::vector<ScoreResult> Take();

 private:
  // Outlives the object while the engine still refers to it.
  struct State {
    absl::Mutex mu;
    std::vector<ScoreResult> results ABSL_GUARDED_BY(mu);
    int num_running ABSL_GUARDED_BY(mu) = 0;
    absl::Status status ABSL_GUARDED_BY(mu);
  };

  Engine& engine_;
  const std::shared_ptr<State> state_ = std::make_shared<State>();
  std::vector<int64_t> handles_;
};

}  // namespace tandem::rollout::openai

#endif  // TANDEM_SERVICES_ROLLOUT_OPENAI_PROMPT_SCORES_H_
