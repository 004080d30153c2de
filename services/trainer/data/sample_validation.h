// What a sample must be before a training step may read it. Checked as samples arrive, so that a
// bad one is refused while nothing has been changed.
#ifndef TANDEM_SERVICES_TRAINER_DATA_SAMPLE_VALIDATION_H_
#define TANDEM_SERVICES_TRAINER_DATA_SAMPLE_VALIDATION_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "tandem/common/v1/sample.pb.h"

namespace tandem::trainer {

struct SampleLimits {
  int64_t vocab_size = 0;
  int64_t max_position_embeddings = 0;
  // Advantages come for all sampled segments of a sample, or for none.
  bool needs_advantages = false;
  // Every token that is trained on must carry the rollout's log-prob.
  bool needs_rollout_logprobs = false;
  // The baseline of ReMax must be there.
  bool needs_baseline_reward = false;
  // Trainers whose weights may have sampled it, where its version spans name one. Empty: any.
  std::vector<int64_t> incarnations;
};

// INVALID_ARGUMENT with a BadField names the first field that is wrong, below `place`:
// "samples[3].segments[1].token_ids[17]: 5000 is outside the vocabulary of 4096".
// FAILED_PRECONDITION (FOREIGN_SAMPLES) for a sample of another trainer's weights. Thread-safe.
absl::Status ValidateSample(const common::v1::Sample& sample, absl::string_view place,
                            const SampleLimits& limits);

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_DATA_SAMPLE_VALIDATION_H_
