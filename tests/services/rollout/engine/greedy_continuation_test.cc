// Greedy continuations of published models, as transformers computed them in float32.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/services/rollout/engine/engine_fixture.h"
#include "tests/support/test_data.h"

namespace tandem::rollout {
namespace {

struct Continuation {
  std::vector<int32_t> prompt;
  std::vector<int32_t> ids;
};

std::vector<Continuation> Stories656k() {
  std::vector<Continuation> out;
  std::ifstream file(testing::TestData("models/tinystories-656k/greedy_3.jsonl"));
  for (std::string line; std::getline(file, line);) {
    const auto row = nlohmann::json::parse(line);
    out.push_back({row["prompt_ids"], row["greedy_ids"]});
  }
  return out;
}

class GreedyContinuationTest : public EngineTest {
 protected:
  void ExpectContinuations(const std::vector<Continuation>& continuations, int repeats = 1) {
    std::vector<GenerationRequest> requests;
    for (int i = 0; i < repeats; ++i) {
      for (const Continuation& c : continuations) {
        requests.push_back(Greedy(c.prompt, static_cast<int64_t>(c.ids.size())));
        requests.back().ignore_eos = true;
      }
    }
    std::vector<Outcome> outcomes(requests.size());
    SubmitTogether(requests, outcomes);
    for (size_t i = 0; i < outcomes.size(); ++i) {
      ASSERT_TRUE(outcomes[i].Wait());
      ASSERT_OK(outcomes[i].status());
      EXPECT_EQ(outcomes[i].sample().token_ids, continuations[i % continuations.size()].ids);
    }
  }
};

TEST_F(GreedyContinuationTest, OfTinystories656kIsThatOfTransformers) {
  SKIP_WITHOUT_DATA("models/tinystories-656k/greedy_3.jsonl");
  StartFolder({}, testing::TestData("models/tinystories-656k"));
  for (const Continuation& c : Stories656k()) ExpectContinuations({c});
}

TEST_F(GreedyContinuationTest, IsTheSameWhateverSharesTheBatch) {
  SKIP_WITHOUT_DATA("models/tinystories-656k/greedy_3.jsonl");
  StartFolder({}, testing::TestData("models/tinystories-656k"));
  ExpectContinuations(Stories656k(), /*repeats=*/4);
}

TEST_F(GreedyContinuationTest, IsTheSameWhenPromptsAreComputedInChunks) {
  SKIP_WITHOUT_DATA("models/tinystories-656k/greedy_3.jsonl");
  StartFolder({.scheduler = {.max_num_batched_tokens = 3}},
              testing::TestData("models/tinystories-656k"));
  ExpectContinuations(Stories656k());
  EXPECT_GT(engine_->Info().scheduler.num_prefilled_tokens, 0);
}

TEST_F(GreedyContinuationTest, IsTheSameWhenBlocksRunOut) {
  SKIP_WITHOUT_DATA("models/tinystories-656k/greedy_3.jsonl");
  // 8 blocks of 16 tokens; each continuation takes 7.
  StartFolder({.kv_cache_bytes = 8 * 2 * 4 * 16 * (16 + 16) * 4},
              testing::TestData("models/tinystories-656k"));
  ExpectContinuations(Stories656k(), /*repeats=*/2);
  EXPECT_GT(engine_->Info().scheduler.num_preemptions, 0);
}

TEST_F(GreedyContinuationTest, OfStories260kIsThatOfTransformers) {
  SKIP_WITHOUT_DATA("models/stories260K-hf/greedy.json");
  std::ifstream file(testing::TestData("models/stories260K-hf/greedy.json"));
  const auto golden = nlohmann::json::parse(file);
  const std::vector<int32_t> ids = golden["greedy_ids"];
  const std::vector<float> logprobs = golden["logprobs"];
  StartFolder({}, testing::TestData("models/stories260K-hf"));

  GenerationRequest request = Greedy({ids[0]}, static_cast<int64_t>(ids.size()) - 1);
  request.ignore_eos = true;
  const SampleChunk sample = Generate(request);

  EXPECT_EQ(sample.token_ids, std::vector<int32_t>(ids.begin() + 1, ids.end()));
  ASSERT_EQ(sample.logprobs.size(), logprobs.size());
  for (size_t i = 0; i < logprobs.size(); ++i) {
    EXPECT_NEAR(sample.logprobs[i], logprobs[i], 1e-4) << "token " << i;
  }
}

}  // namespace
}  // namespace tandem::rollout
