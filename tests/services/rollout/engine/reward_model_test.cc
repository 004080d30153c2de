// Reward models in the engine: their logits are those of transformers' AutoModelForSequenceClassification
// (tests/parity/reward_model_golden.py), however they are scheduled.
#include <gmock/gmock.h>

#include <cstdlib>
#include <limits>
#include <string>

#include "common/io/read_file.h"
#include "common/model/reward_model_spec.h"
#include "nlohmann/json.hpp"
#include "tests/services/rollout/engine/engine_fixture.h"

namespace tandem::rollout {
namespace {

using ::tandem::testing::StatusIs;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

std::string GoldenFolder() {
  const char* source = std::getenv("TANDEM_SOURCE");
  return absl::StrCat(source == nullptr ? "." : source,
                      "/tests/services/rollout/engine/reward_models");
}

class RewardModelTest : public EngineTest {
 protected:
  static EngineOptions Options() {
    EngineOptions options;
    options.dtype = at::kFloat;
    options.block_size = 16;
    options.kv_cache_bytes = int64_t{8} << 20;
    return options;
  }

  void StartFamily(const std::string& family, EngineOptions options = Options()) {
    const std::string path = GoldenFolder() + "/" + family;
    ASSERT_OK_AND_ASSIGN(io::ModelFolder folder, io::ModelFolder::Open(path));
    ASSERT_OK(model::CheckRewardHead(folder));
    ASSERT_OK_AND_ASSIGN(model::ModelSpec spec,
                         model::ParseRewardModelSpec(folder.config().json, folder.config().path));
    Start(std::move(options), std::move(spec));
    ASSERT_OK_AND_ASSIGN(auto arena, engine_->weights().Staged());
    model::Arena plain(model_->table(), engine_->weights().dtype());
    ASSERT_OK(model::LoadParameters(folder, plain));
    arena->CopyFrom(plain);
    ASSERT_OK(engine_->Commit(0, absl::Now() + kPatience).status());
  }

  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(const std::string text, io::ReadFile(GoldenFolder() + "/golden.json"));
    golden_ = nlohmann::json::parse(text);
  }

  // Scores all of a family's sequences at once, and compares.
  void ExpectGolden(const std::string& family) {
    const auto sequences = golden_[family]["sequences"].get<std::vector<std::vector<int32_t>>>();
    const auto expected = golden_[family]["logits"].get<std::vector<float>>();
    std::vector<absl::StatusOr<ScoreResult>> results(sequences.size(),
                                                     absl::UnknownError("no answer"));
    std::vector<absl::Notification> done(sequences.size());
    for (size_t i = 0; i < sequences.size(); ++i) {
      ASSERT_OK(engine_
                    ->Score({.token_ids = sequences[i]},
                            [&, i](absl::StatusOr<ScoreResult> answer) {
                              results[i] = std::move(answer);
                              done[i].Notify();
                            })
                    .status());
    }
    for (size_t i = 0; i < sequences.size(); ++i) {
      ASSERT_TRUE(done[i].WaitForNotificationWithTimeout(kPatience)) << family << " " << i;
      ASSERT_OK(results[i].status());
      ASSERT_THAT(results[i]->class_logits, SizeIs(1));
      EXPECT_THAT(results[i]->logprobs, IsEmpty());
      EXPECT_NEAR(results[i]->class_logits[0], expected[i], 1e-5) << family << " " << i;
    }
  }

  nlohmann::json golden_;
};

TEST_F(RewardModelTest, LogitsAreThoseOfTransformers) {
  for (const std::string family : {"llama", "qwen2", "qwen3", "gpt2"}) {
    StartFamily(family);
    ASSERT_NE(engine_, nullptr) << family;
    EXPECT_EQ(model_->spec().architecture, golden_[family]["architecture"]);
    ExpectGolden(family);
  }
}

TEST_F(RewardModelTest, ChunksOfPromptsChangeNothing) {
  EngineOptions options = Options();
  options.scheduler.max_num_batched_tokens = 24;
  StartFamily("qwen3", options);
  ASSERT_NE(engine_, nullptr);
  ExpectGolden("qwen3");
}

TEST_F(RewardModelTest, ASharedPrefixIsComputedOnce) {
  StartFamily("llama");
  ASSERT_NE(engine_, nullptr);
  const auto tokens = golden_["llama"]["sequences"][7].get<std::vector<int32_t>>();
  ASSERT_OK_AND_ASSIGN(const ScoreResult first, Score({.token_ids = tokens}));
  const int64_t computed = engine_->Info().scheduler.num_prefilled_tokens;
  ASSERT_OK_AND_ASSIGN(const ScoreResult again, Score({.token_ids = tokens}));

  EXPECT_EQ(first.class_logits, again.class_logits);
  EXPECT_GE(engine_->Info().scheduler.num_cached_tokens, 192);
  EXPECT_LE(engine_->Info().scheduler.num_prefilled_tokens - computed, 8);
}

TEST_F(RewardModelTest, ALogitDoesNotDependOnWhatIsComputedWithIt) {
  StartFamily("qwen2");
  ASSERT_NE(engine_, nullptr);
  const std::vector<int32_t> padded = {5, 6, 7, 0, 0};
  ASSERT_OK_AND_ASSIGN(const ScoreResult with_padding, Score({.token_ids = padded}));
  ASSERT_OK_AND_ASSIGN(const ScoreResult without, Score({.token_ids = {5, 6, 7}}));
  EXPECT_EQ(with_padding.class_logits, without.class_logits);
}

TEST_F(RewardModelTest, SamplesNothing) {
  StartFamily("llama");
  ASSERT_NE(engine_, nullptr);
  Outcome outcome;
  EXPECT_THAT(engine_->Submit(Greedy({1, 2}, 3), outcome.callbacks()).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("reward model")));
}

TEST_F(RewardModelTest, RefusesWhatHasNoEffect) {
  StartFamily("llama");
  ASSERT_NE(engine_, nullptr);
  EXPECT_THAT(Score({.token_ids = {1, 2}, .temperature = 0.5}).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("temperature")));
  EXPECT_THAT(Score({.token_ids = {1, 2}, .num_top_logprobs = 1}).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("num_top_logprobs")));
  EXPECT_THAT(Score({.token_ids = {1, 2}, .first_scored = 1}).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("first_scored_token")));
  EXPECT_THAT(Score({.token_ids = {67}}).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("token_ids[0]")));
}

TEST_F(RewardModelTest, ALogitThatIsNotFiniteIsAnError) {
  StartFamily("llama");
  ASSERT_NE(engine_, nullptr);
  ASSERT_OK_AND_ASSIGN(auto arena, engine_->weights().Staged());
  model::Arena plain(model_->table(), engine_->weights().dtype());
  ASSERT_OK_AND_ASSIGN(io::ModelFolder folder, io::ModelFolder::Open(GoldenFolder() + "/llama"));
  ASSERT_OK(model::LoadParameters(folder, plain));
  plain.Get(model_->table().value_head()).fill_(std::numeric_limits<float>::quiet_NaN());
  arena->CopyFrom(plain);
  ASSERT_OK(engine_->Commit(1, absl::Now() + kPatience).status());
  EXPECT_THAT(Score({.token_ids = {1, 2}}).status(),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("not finite")));
}

}  // namespace
}  // namespace tandem::rollout
