// An engine that gives its memory back while it is paused, and wakes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>

#include "common/host/process_memory.h"
#include "common/rpc/status_conversion.h"
#include "tandem/common/v1/error.pb.h"
#include "tests/services/rollout/engine/engine_fixture.h"
#include "tests/support/staged_weights.h"

namespace tandem::rollout {
namespace {

std::string ReasonOf(const absl::Status& status) {
  const auto info = rpc::GetDetail<common::v1::ErrorInfo>(status);
  return info.has_value() ? info->reason() : "";
}

class SleepTest : public EngineTest {
 protected:
  void Sleep(Release release, PauseMode mode = PauseMode::kKeep) {
    absl::Notification done;
    engine_->Pause(mode, release, [&](int64_t) { done.Notify(); });
    ASSERT_TRUE(done.WaitForNotificationWithTimeout(kPatience));
  }
  void Wake() {
    absl::Notification done;
    engine_->Resume([&] { done.Notify(); });
    ASSERT_TRUE(done.WaitForNotificationWithTimeout(kPatience));
  }
  static EngineOptions Options() {
    EngineOptions options;
    options.kv_cache_bytes = 1 << 20;
    return options;
  }
  static GenerationRequest Streamed(int64_t max_tokens) {
    GenerationRequest request = Greedy(Prompt(40), max_tokens);
    request.ignore_eos = true;
    request.stream = true;
    return request;
  }
};

TEST_F(SleepTest, TheMemoryGoesBackToTheSystem) {
  model::ModelSpec spec = SmallSpec();
  spec.hidden_size = 512;
  spec.vocab_size = 4000;
  spec.max_position_embeddings = 2048;
  model::LayerSpec layer;
  layer.feed_forward.intermediate_size = 1024;
  layer.attention.num_heads = 8;
  layer.attention.num_kv_heads = 8;
  layer.attention.head_dim = 64;
  spec.layers.assign(4, layer);
  EngineOptions options;
  options.kv_cache_bytes = 40 << 20;
  StartRandom(options, spec);
  const SampleChunk before = Generate(Greedy(Prompt(1500, 0, 4000), 2));
  const int64_t weights = model_->table().num_parameters() * 4;
  const int64_t cache =
      int64_t{1500} * 2 * spec.num_layers() * spec.layers.front().attention.kv_size() * 4;
  const int64_t awake = host::ResidentBytes();

  Sleep({.kv_cache = true});
  const int64_t without_cache = host::ResidentBytes();
  EXPECT_LT(without_cache, awake - cache * 9 / 10);
  Sleep({.weights = true});
  EXPECT_LT(host::ResidentBytes(), without_cache - weights * 8 / 10);

  // The second one goes to where the first weights were.
  CommitRandom(/*version=*/1, /*seed=*/2);
  CommitRandom(/*version=*/2, /*seed=*/1);
  Wake();
  EXPECT_EQ(Generate(Greedy(Prompt(1500, 0, 4000), 2)).token_ids, before.token_ids);
}

TEST_F(SleepTest, FrozenRequestsGoOnAsIfNothingHadBeen) {
  StartRandom(Options());
  const std::vector<int32_t> expected = Generate(Streamed(120)).token_ids;
  Outcome outcome;
  SubmitAndPauseAt(Streamed(120), 10, outcome, {.kv_cache = true});
  EXPECT_TRUE(engine_->Info().released.kv_cache);
  EXPECT_EQ(engine_->Info().num_free_kv_blocks, engine_->Info().num_kv_blocks);
  Wake();
  ASSERT_TRUE(outcome.Wait());
  EXPECT_OK(outcome.status());
  EXPECT_EQ(outcome.sample().token_ids, expected);
  EXPECT_FALSE(engine_->Info().released.kv_cache);
}

TEST_F(SleepTest, WhatTheCacheHeldIsNotFoundAgain) {
  StartRandom(Options());
  const SampleChunk before = Generate(Streamed(4));
  Sleep({.kv_cache = true});
  Wake();
  const SampleChunk after = Generate(Streamed(4));
  EXPECT_EQ(after.num_cached_tokens, 0);
  EXPECT_EQ(after.token_ids, before.token_ids);
}

TEST_F(SleepTest, WithoutWeightsRequestsAreRefusedAndFrozenOnesWaitForThem) {
  StartRandom(Options());
  Outcome frozen;
  SubmitAndPauseAt(Streamed(120), 10, frozen, {.kv_cache = true, .weights = true});

  EXPECT_EQ(engine_->Info().policy_version, -1);
  EXPECT_EQ(engine_->Info().last_version, 0);
  Outcome refused;
  const absl::Status status = engine_->Submit(Streamed(4), refused.callbacks()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(ReasonOf(status), "WEIGHTS_RELEASED");

  // Awake without weights: the frozen one still waits.
  Wake();
  EXPECT_FALSE(frozen.done());
  CommitRandom(/*version=*/1, /*seed=*/2);
  ASSERT_TRUE(frozen.Wait());
  EXPECT_OK(frozen.status());
  const SampleChunk sample = frozen.sample();
  EXPECT_EQ(sample.token_ids.size(), 120u);
  EXPECT_EQ(sample.version_spans.front().policy_version, 0);
  EXPECT_EQ(sample.version_spans.back().policy_version, 1);
}

TEST_F(SleepTest, AnUpdateMayComeWhileItSleeps) {
  StartRandom(Options());
  for (const bool weights : {false, true}) {
    const int64_t version = weights ? 2 : 1;
    Sleep({.kv_cache = true, .weights = weights});
    CommitRandom(version, /*seed=*/static_cast<uint64_t>(10 + version));
    EXPECT_EQ(engine_->Info().policy_version, version);
    EXPECT_FALSE(engine_->Info().released.weights);
    Outcome waits;
    Submit(Streamed(6), waits);
    EXPECT_FALSE(waits.done());
    Wake();
    ASSERT_TRUE(waits.Wait());
    const SampleChunk found = waits.sample();
    EXPECT_EQ(found.version_spans[0].policy_version, version);

    Start(Options(), SmallSpec());
    CommitRandom(version, static_cast<uint64_t>(10 + version));
    EXPECT_EQ(Generate(Streamed(6)).token_ids, found.token_ids);
  }
}

TEST_F(SleepTest, WhatIsStagedSurvivesTheReleaseOfWhatIsLive) {
  StartRandom(Options());
  ASSERT_OK_AND_ASSIGN(auto staged, engine_->weights().Staged());
  tandem::testing::StageRandom(model_->spec(), 3, *staged);
  Sleep({.weights = true});
  ASSERT_OK(engine_->Commit(1, absl::Now() + kPatience).status());
  Wake();
  const std::vector<int32_t> found = Generate(Streamed(6)).token_ids;
  Start(Options(), SmallSpec());
  CommitRandom(1, 3);
  EXPECT_EQ(Generate(Streamed(6)).token_ids, found);
}

TEST_F(SleepTest, ACancelledRequestLeavesASleepingEngine) {
  StartRandom(Options());
  Outcome outcome;
  const int64_t handle =
      SubmitAndPauseAt(Streamed(120), 10, outcome, {.kv_cache = true, .weights = true});
  engine_->Cancel(handle);
  ASSERT_TRUE(outcome.Wait());
  EXPECT_EQ(outcome.status().code(), absl::StatusCode::kCancelled);
}

}  // namespace
}  // namespace tandem::rollout
