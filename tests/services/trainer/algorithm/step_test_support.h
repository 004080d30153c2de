// A small sharded model and a ragged batch for tests of whole training steps.
#ifndef TANDEM_TESTS_SERVICES_TRAINER_ALGORITHM_STEP_TEST_SUPPORT_H_
#define TANDEM_TESTS_SERVICES_TRAINER_ALGORITHM_STEP_TEST_SUPPORT_H_

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "services/trainer/data/training_batch.h"
#include "services/trainer/fsdp/sharded_model.h"
#include "tests/services/trainer/fsdp/sharded_test_support.h"
#include "tests/support/status_matchers.h"

namespace tandem::trainer {

// A model with the seed's values, sharded over the mesh. Collective.
inline std::unique_ptr<ShardedModel> MakeModel(const comm::DeviceMesh& mesh, uint64_t seed,
                                               bool trainable = true) {
  ShardedModelOptions options;
  options.spec = SmallSpec();
  options.mesh = &mesh;
  options.trainable = trainable;
  auto model = ShardedModel::Create(options);
  EXPECT_OK(model.status());
  SetParameters(**model, seed);
  return *std::move(model);
}

// Four groups of three samples of 1 to 12 sampled tokens after a prompt of 1 to 4, log-probs of the
// rollout around -4 (the model's are about log(1/61)), rewards in quarters. One sample is masked
// out.
inline TrainingBatch RaggedBatch(uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto below = [&random](int64_t bound) { return static_cast<int64_t>(random() % bound); };
  TrainingBatch batch;
  batch.num_groups = 4;
  for (int64_t i = 0; i < 12; ++i) {
    Sequence& sequence = batch.sequences.emplace_back();
    sequence.group = i / 3;
    sequence.prompt_tokens = 1 + below(4);
    sequence.response_tokens = 1 + below(12);
    const int64_t length = sequence.prompt_tokens + sequence.response_tokens;
    for (int64_t t = 0; t < length; ++t) {
      sequence.token_ids.push_back(below(SmallSpec().vocab_size));
      if (t < sequence.prompt_tokens || i == 5) continue;
      sequence.trained.push_back(t);
      sequence.rollout_logprobs.push_back(-4.0f - 0.01f * static_cast<float>(below(30)));
    }
    sequence.reward = static_cast<double>(below(5)) / 4;
    sequence.baseline_reward = 0.25 * static_cast<double>(sequence.group);
  }
  return batch;
}

}  // namespace tandem::trainer

#endif  // TANDEM_TESTS_SERVICES_TRAINER_ALGORITHM_STEP_TEST_SUPPORT_H_
