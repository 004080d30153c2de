// Validates samples as they arrive, so that a bad one is refused before a training step changes
// anything.
#ifndef TANDEM_SERVICES_TRAINER_DATA_SAMPLE_VALIDATION_H_
#define TANDEM_SERVICES_TRAINER_DATA_SAMPLE_VALIDATION_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/model/routed_experts.h"
#include "tandem/common/v1/sample.pb.h"

namespace tandem::trainer {

struct SampleLimits {
  int64_t vocab_size = 0;
  int64_t max_position_embeddings = 0;
  // Advantages come for all sampled segments of a sample, or for none.
  bool needs_advantages = false;
  // Every token that is trained on must carry the rollout's log-prob.
  bool needs_rollout_logprobs = false;
  // Requires the baseline reward of ReMax.
  bool needs_baseline_reward = false;
  // Requires the parts of the reward.
  bool needs_reward_parts = false;
  // Every sampled token must carry the teacher's log-prob.
  bool needs_teacher_logprobs = false;
  // Every sampled token must carry this many of the teacher's likeliest ids; 0: none are read.
  int64_t num_teacher_top = 0;
  // The experts that samples may state; nullopt: a model without them, or whose routing cannot
  // travel, which takes none.
  std::optional<model::RoutedLayout> routed_layout;
  // Requires those of every sampled segment.
  bool needs_routed_experts = false;
  // Incarnations of trainers whose weights may have sampled it, as version spans name them. Empty:
  // any.
  std::vector<int64_t> incarnations;
};

// INVALID_ARGUMENT with a BadField names the first invalid field, below `place`:
// "samples[3].segments[1].token_ids[17]: 5000 is outside the vocabulary of 4096".
// FAILED_PRECONDITION (FOREIGN_SAMPLES): another trainer's weights generated the sample.
// Thread-safe.
absl::Status ValidateSample(const common::v1::Sample& sample, absl::string_view place,
                            const SampleLimits& limits);

// INVALID_ARGUMENT, like ValidateSample(), if the reward parts of two validated samples of one step
// differ in names or weights, or one has none. `first` is samples[0].
absl::Status CheckSameRewardParts(const common::v1::Sample& first, const common::v1::Sample& sample,
                                  absl::string_view place);

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_DATA_SAMPLE_VALIDATION_H_
