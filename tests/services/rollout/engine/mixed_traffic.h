// Requests of several samples, whose prompts begin alike or are equal, in chunks and with preemptions:
// whatever a cache holds, their log-probs are the trainer's.
#ifndef TANDEM_TESTS_SERVICES_ROLLOUT_ENGINE_MIXED_TRAFFIC_H_
#define TANDEM_TESTS_SERVICES_ROLLOUT_ENGINE_MIXED_TRAFFIC_H_

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "tests/services/rollout/engine/engine_fixture.h"
#include "tests/services/rollout/engine/trainer_log_probs.h"
#include "tests/support/staged_weights.h"

namespace tandem::rollout {

class MixedTrafficTest : public EngineTest {
 protected:
  // Of an engine that runs, on the CPU, and whose cache makes some sequences wait for others.
  void ExpectTrainersLogProbs() {
    std::vector<GenerationRequest> requests(24);
    std::vector<Outcome> outcomes(requests.size());
    for (size_t i = 0; i < requests.size(); ++i) {
      requests[i].prompt_ids = Prompt(40 + 5 * static_cast<int64_t>(i % 7), i % 3, 700);
      requests[i].max_tokens = 30;
      requests[i].n = 2;
      requests[i].seed = i;
    }
    SubmitTogether(requests, outcomes);
    double largest = 0;
    for (size_t i = 0; i < requests.size(); ++i) {
      ASSERT_TRUE(outcomes[i].Wait());
      ASSERT_OK(outcomes[i].status());
      for (int32_t n = 0; n < 2; ++n) {
        const SampleChunk sample = outcomes[i].sample(n);
        std::vector<int32_t> tokens = requests[i].prompt_ids;
        tokens.insert(tokens.end(), sample.token_ids.begin(), sample.token_ids.end());
        const at::Tensor expected = at::tensor(TrainerLogProbs(
            *model_, *tandem::testing::PlainCopy(*engine_->weights().live()), tokens));
        const at::Tensor found = at::tensor(sample.logprobs);
        const auto first = static_cast<int64_t>(requests[i].prompt_ids.size()) - 1;
        const at::Tensor difference = (found - expected.narrow(0, first, found.numel())).abs();
        largest = std::max(largest, difference.max().item<double>());
      }
    }
    EXPECT_LT(largest, 1e-4);
    EXPECT_GT(engine_->Info().scheduler.num_preemptions, 0);
    EXPECT_GT(engine_->Info().scheduler.num_cached_tokens, 0);
  }

  // An engine with this cache generates one sequence of 400 tokens, which needs all of it.
  void ExpectToHold400Tokens(const model::ModelSpec& spec, int64_t kv_cache_bytes) {
    EngineOptions options;
    options.max_model_len = 400;
    options.scheduler = {.max_num_seqs = 1, .max_num_batched_tokens = 16};
    options.kv_cache_bytes = kv_cache_bytes;
    StartRandom(options, spec);
    Outcome outcome;
    GenerationRequest request = Greedy(Prompt(200, 1, 700), 200);
    request.ignore_eos = true;
    ASSERT_OK(engine_->Submit(request, outcome.callbacks()).status());
    ASSERT_TRUE(outcome.Wait());
    ASSERT_OK(outcome.status());
    EXPECT_EQ(outcome.sample(0).token_ids.size(), 200);
  }
};

}  // namespace tandem::rollout

#endif  // TANDEM_TESTS_SERVICES_ROLLOUT_ENGINE_MIXED_TRAFFIC_H_
