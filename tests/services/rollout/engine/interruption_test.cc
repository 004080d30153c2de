// What happens to running requests: aborts, cancellation, pauses, new weights, drains.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "tests/services/rollout/engine/engine_fixture.h"
#include "tests/support/staged_weights.h"

namespace tandem::rollout {
namespace {

using ::tandem::testing::StatusIs;
using ::testing::HasSubstr;

constexpr int64_t kTokens = 24;

class InterruptionTest : public EngineTest {
 protected:
  void Resume() {
    absl::Notification resumed;
    engine_->Resume([&] { resumed.Notify(); });
    ASSERT_TRUE(resumed.WaitForNotificationWithTimeout(kPatience));
  }
};

TEST_F(InterruptionTest, AnAbortReturnsWhatWasSampled) {
  StartRandom({});
  GenerationRequest request = Greedy(Prompt(5), kTokens);
  const std::vector<int32_t> whole = Generate(request).token_ids;
  request.id = "a";
  Outcome outcome;
  SubmitAndPauseAt(request, 7, outcome);
  absl::Notification done;
  int64_t aborted = 0;
  engine_->Abort({"a", "unknown"}, /*all=*/false, [&](int64_t count) {
    aborted = count;
    done.Notify();
  });
  ASSERT_TRUE(done.WaitForNotificationWithTimeout(kPatience));
  ASSERT_TRUE(outcome.Wait());
  EXPECT_OK(outcome.status());
  EXPECT_EQ(aborted, 1);
  EXPECT_EQ(outcome.sample().token_ids, std::vector<int32_t>(whole.begin(), whole.begin() + 7));
  EXPECT_EQ(outcome.sample().finish_reason, FinishReason::kAborted);
}

TEST_F(InterruptionTest, ACancelledRequestFreesItsBlocksAtOnce) {
  StartRandom({});
  Outcome outcome;
  GenerationRequest request = Greedy(Prompt(100), kTokens);
  request.n = 3;
  const int64_t handle = SubmitAndPauseAt(request, 3, outcome);
  EXPECT_LT(engine_->Info().num_free_kv_blocks, engine_->Info().num_kv_blocks);
  engine_->Cancel(handle);
  ASSERT_TRUE(outcome.Wait());
  EXPECT_THAT(outcome.status(), StatusIs(absl::StatusCode::kCancelled, ::testing::_));
  EXPECT_EQ(engine_->Info().num_free_kv_blocks, engine_->Info().num_kv_blocks);
}

TEST_F(InterruptionTest, APauseFreezesAndAResumeGoesOn) {
  StartRandom({});
  const std::vector<int32_t> whole = Generate(Greedy(Prompt(5), kTokens)).token_ids;
  Outcome outcome, queued;
  SubmitAndPauseAt(Greedy(Prompt(5), kTokens), 4, outcome);
  EXPECT_EQ(frozen_, 1);
  EXPECT_TRUE(engine_->Info().paused);
  Submit(Greedy(Prompt(5), kTokens), queued);
  EXPECT_EQ(outcome.sample().token_ids.size(), 4u);
  Resume();
  ASSERT_TRUE(outcome.Wait());
  ASSERT_TRUE(queued.Wait());
  EXPECT_EQ(outcome.sample().token_ids, whole);
  EXPECT_EQ(queued.sample().token_ids, whole);
}

TEST_F(InterruptionTest, APauseThatWaitsLetsRequestsEndAndQueuesNewOnes) {
  StartRandom({});
  Outcome running, late;
  GenerationRequest request = Greedy(Prompt(5), kTokens);
  request.stream = true;
  absl::Notification paused;
  int64_t frozen = -1;
  GenerationCallbacks callbacks = running.callbacks();
  bool first = true;
  callbacks.on_chunk = [&, record = callbacks.on_chunk](SampleChunk chunk) {
    record(std::move(chunk));
    if (!std::exchange(first, false)) return;
    engine_->Pause(PauseMode::kWait, [&](int64_t count) {
      frozen = count;
      paused.Notify();
    });
    EXPECT_OK(engine_->Submit(Greedy(Prompt(6), 2), late.callbacks()).status());
  };
  ASSERT_OK(engine_->Submit(request, callbacks).status());
  ASSERT_TRUE(paused.WaitForNotificationWithTimeout(kPatience));
  EXPECT_TRUE(running.done());
  EXPECT_FALSE(late.done());
  EXPECT_EQ(frozen, 0);
  EXPECT_EQ(running.sample().token_ids.size(), static_cast<size_t>(kTokens));
  Resume();
  EXPECT_TRUE(late.Wait());
}

TEST_F(InterruptionTest, ACommitRecomputesTheCacheUnderTheNewWeights) {
  StartRandom({.in_flight = InFlightPolicy::kKeepRecompute});
  Outcome outcome;
  GenerationRequest request = Greedy(Prompt(20), kTokens);
  request.n = 2;
  SubmitAndPauseAt(request, 10, outcome);
  ASSERT_OK_AND_ASSIGN(auto arena, engine_->weights().Staged());
  tandem::testing::StageRandom(model_->spec(), /*seed=*/2, *arena);
  ASSERT_OK_AND_ASSIGN(const CommitResult commit, engine_->Commit(1, absl::Now() + kPatience));
  Resume();
  ASSERT_TRUE(outcome.Wait());

  EXPECT_EQ(commit.num_recomputed_requests, 1);
  EXPECT_LT(commit.pause_seconds, 1.0);
  const SampleChunk sample = outcome.sample(0);
  ASSERT_EQ(sample.token_ids.size(), static_cast<size_t>(kTokens));
  int64_t of_version[2] = {0, 0};
  for (const VersionSpan& span : sample.version_spans) {
    ASSERT_LE(span.policy_version, 1);
    of_version[span.policy_version] += span.end - span.begin;
  }
  EXPECT_EQ(of_version[0], 10);
  EXPECT_EQ(of_version[1], kTokens - 10);

  // As if the new weights had been given prompt and first tokens from the start.
  std::vector<int32_t> prefix = Prompt(20);
  prefix.insert(prefix.end(), sample.token_ids.begin(), sample.token_ids.begin() + 10);
  const SampleChunk fresh = Generate(Greedy(prefix, kTokens - 10));
  EXPECT_EQ(fresh.token_ids,
            std::vector<int32_t>(sample.token_ids.begin() + 10, sample.token_ids.end()));
}

TEST_F(InterruptionTest, ACommitMayKeepTheOldCache) {
  StartRandom({.in_flight = InFlightPolicy::kKeepKv});
  Outcome outcome;
  SubmitAndPauseAt(Greedy(Prompt(40), kTokens), 10, outcome);
  const int64_t prefilled = engine_->Info().scheduler.num_prefilled_tokens;
  CommitRandom(/*version=*/1, /*seed=*/2);
  Resume();
  ASSERT_TRUE(outcome.Wait());
  EXPECT_EQ(outcome.sample().token_ids.size(), static_cast<size_t>(kTokens));
  EXPECT_EQ(outcome.sample().version_spans.back().policy_version, 1);
  EXPECT_EQ(engine_->Info().scheduler.num_prefilled_tokens, prefilled);
  // Nobody else is given that cache.
  EXPECT_EQ(Generate(Greedy(Prompt(40), 2)).num_cached_tokens, 0);
}

TEST_F(InterruptionTest, ACommitMayAbort) {
  StartRandom({.in_flight = InFlightPolicy::kAbort});
  Outcome outcome;
  SubmitAndPauseAt(Greedy(Prompt(5), kTokens), 10, outcome);
  Outcome queued;
  Submit(Greedy(Prompt(5), 3), queued);
  ASSERT_OK_AND_ASSIGN(auto arena, engine_->weights().Staged());
  tandem::testing::StageRandom(model_->spec(), /*seed=*/2, *arena);
  ASSERT_OK_AND_ASSIGN(const CommitResult commit, engine_->Commit(1, absl::Now() + kPatience));
  ASSERT_TRUE(outcome.Wait());
  EXPECT_EQ(commit.num_aborted_requests, 1);
  EXPECT_EQ(outcome.sample().token_ids.size(), 10u);
  EXPECT_EQ(outcome.sample().finish_reason, FinishReason::kAborted);
  // One that had not begun is served by the new version.
  Resume();
  ASSERT_TRUE(queued.Wait());
  EXPECT_EQ(queued.sample().version_spans.front().policy_version, 1);
}

TEST_F(InterruptionTest, ACommitMayWaitForRequests) {
  StartRandom({.in_flight = InFlightPolicy::kWait});
  ASSERT_OK_AND_ASSIGN(auto arena, engine_->weights().Staged());
  tandem::testing::StageRandom(model_->spec(), /*seed=*/2, *arena);
  Outcome outcome;
  SubmitAndPauseAt(Greedy(Prompt(5), kTokens), 10, outcome);
  Resume();
  ASSERT_OK(engine_->Commit(1, absl::Now() + kPatience).status());
  ASSERT_TRUE(outcome.done());
  for (const VersionSpan& span : outcome.sample().version_spans) {
    EXPECT_EQ(span.policy_version, 0);
  }
  EXPECT_EQ(Generate(Greedy(Prompt(5), 2)).version_spans.front().policy_version, 1);
}

TEST_F(InterruptionTest, ACommitThatMissesItsDeadlineNeverHappens) {
  StartRandom({.in_flight = InFlightPolicy::kWait});
  ASSERT_OK(engine_->weights().Staged().status());
  Outcome outcome;
  SubmitAndPauseAt(Greedy(Prompt(5), kTokens), 10, outcome);
  Resume();
  // Either it waits for the request and gives up, or the request was done already.
  const auto commit = engine_->Commit(1, absl::Now() - absl::Seconds(1));
  ASSERT_TRUE(outcome.Wait());
  if (!commit.ok()) {
    EXPECT_THAT(commit.status(), StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("1")));
    Generate(Greedy(Prompt(5), 2));
    EXPECT_EQ(engine_->Info().policy_version, 0);
  }
}

TEST_F(InterruptionTest, AScoreUnderWayBeginsAgainUnderTheNewWeights) {
  StartRandom({.scheduler = {.max_num_batched_tokens = 8}});
  Outcome outcome;
  SubmitAndPauseAt(Greedy(Prompt(5), kTokens), 3, outcome);
  absl::Notification done;
  absl::StatusOr<ScoreResult> result = absl::UnknownError("none");
  ASSERT_OK(engine_
                ->Score({.token_ids = Prompt(60)},
                        [&](absl::StatusOr<ScoreResult> answer) {
                          result = std::move(answer);
                          done.Notify();
                        })
                .status());
  CommitRandom(/*version=*/1, /*seed=*/2);
  Resume();
  ASSERT_TRUE(done.WaitForNotificationWithTimeout(kPatience));
  ASSERT_OK(result.status());
  EXPECT_EQ(result->policy_version, 1);
  EXPECT_EQ(result->logprobs.size(), 59u);
  EXPECT_TRUE(outcome.Wait());
}

TEST_F(InterruptionTest, ADrainHandsBackWhatThereIs) {
  StartRandom({});
  Outcome outcome, refused;
  SubmitAndPauseAt(Greedy(Prompt(5), kTokens), 10, outcome);
  engine_->Drain(absl::Now() + kPatience);
  ASSERT_TRUE(outcome.Wait());
  EXPECT_OK(outcome.status());
  EXPECT_EQ(outcome.sample().token_ids.size(), 10u);
  EXPECT_EQ(outcome.sample().finish_reason, FinishReason::kAborted);
  EXPECT_THAT(engine_->Submit(Greedy(Prompt(3), 2), refused.callbacks()).status(),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("draining")));
}

TEST_F(InterruptionTest, ADrainLetsRequestsEnd) {
  StartRandom({});
  Outcome outcome;
  SubmitAndPauseAt(Greedy(Prompt(5), kTokens), 10, outcome);
  Resume();
  engine_->Drain(absl::Now() + kPatience);
  ASSERT_TRUE(outcome.Wait());
  EXPECT_EQ(outcome.sample().token_ids.size(), static_cast<size_t>(kTokens));
}

TEST_F(InterruptionTest, NobodyIsLeftWaitingWhenTheEngineEnds) {
  StartRandom({});
  Outcome outcome;
  SubmitAndPauseAt(Greedy(Prompt(5), kTokens), 10, outcome);
  engine_.reset();
  ASSERT_TRUE(outcome.Wait());
  EXPECT_THAT(outcome.status(), StatusIs(absl::StatusCode::kCancelled, ::testing::_));
}

}  // namespace
}  // namespace tandem::rollout
