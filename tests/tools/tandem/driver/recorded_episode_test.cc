// Which sequences an agent's recorded calls make.
#include "tools/tandem/driver/recorded_episode.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "tests/support/status_matchers.h"
#include "tools/tandem/driver/episode_sequences.h"
#include "tools/tandem/driver/sample_builder.h"

namespace tandem::driver {
namespace {

using common::v1::SEGMENT_KIND_ENVIRONMENT;
using common::v1::SEGMENT_KIND_PROMPT;
using common::v1::SEGMENT_KIND_SAMPLED;
using rollout::v1::RecordedCall;
using ::tandem::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Ids = std::vector<uint32_t>;

RecordedCall Call(const Ids& prompt, const Ids& sampled, int64_t version = 1) {
  RecordedCall call;
  call.mutable_prompt_token_ids()->Add(prompt.begin(), prompt.end());
  call.mutable_token_ids()->Add(sampled.begin(), sampled.end());
  for (const uint32_t id : sampled) {
    call.add_logprobs(-1.0f - static_cast<float>(id));
    call.add_processed_logprobs(-2.0f - static_cast<float>(id));
  }
  common::v1::VersionSpan& span = *call.add_version_spans();
  span.set_policy_version(version);
  span.set_end(static_cast<int64_t>(sampled.size()));
  span.set_incarnation(9);
  call.set_finish_reason(common::v1::FINISH_REASON_STOP);
  call.set_text(std::to_string(sampled.front()));
  return call;
}

std::vector<common::v1::Sample> Samples(Completion completion) {
  Group group;
  group.prompt.token_ids = {77};  // the row's, which the agent does not use
  group.completions.push_back(std::move(completion));
  return ToSamples(1, {group}, 1);
}

Ids IdsOf(const common::v1::Segment& segment) {
  return {segment.token_ids().begin(), segment.token_ids().end()};
}

TEST(RecordedEpisode, ACallThatGoesOnExtendsItsSequence) {
  ASSERT_OK_AND_ASSIGN(const Completion episode,
                       EpisodeOfCalls({Call({1, 2}, {3, 4}, 5), Call({1, 2, 3, 4, 20, 21}, {6}, 6),
                                       Call({1, 2, 3, 4, 20, 21, 6}, {7}, 6)},
                                      /*incarnation=*/9));
  EXPECT_EQ(episode.text, "7");
  EXPECT_EQ(episode.finish_reason, common::v1::FINISH_REASON_STOP);
  EXPECT_EQ(episode.facts.num_turns, 3);
  EXPECT_EQ(episode.facts.num_prompt_tokens, 6 + 7);
  const auto samples = Samples(episode);
  ASSERT_EQ(samples.size(), 1u);
  ASSERT_EQ(samples[0].segments_size(), 5);
  const auto segment = [&samples](int i) { return samples[0].segments(i); };
  EXPECT_EQ(segment(0).kind(), SEGMENT_KIND_PROMPT);
  EXPECT_THAT(IdsOf(segment(0)), ElementsAre(1, 2));
  EXPECT_EQ(segment(1).kind(), SEGMENT_KIND_SAMPLED);
  EXPECT_THAT(IdsOf(segment(1)), ElementsAre(3, 4));
  EXPECT_THAT(segment(1).logprobs(), ElementsAre(-5.0f, -6.0f));
  EXPECT_EQ(segment(1).version_spans(0).policy_version(), 5);
  EXPECT_EQ(segment(2).kind(), SEGMENT_KIND_ENVIRONMENT);
  EXPECT_THAT(IdsOf(segment(2)), ElementsAre(20, 21));
  EXPECT_THAT(IdsOf(segment(3)), ElementsAre(6));
  EXPECT_EQ(segment(3).version_spans(0).policy_version(), 6);
  // Nothing lies between the last two.
  EXPECT_EQ(segment(4).kind(), SEGMENT_KIND_SAMPLED);
  EXPECT_THAT(IdsOf(segment(4)), ElementsAre(7));
}

TEST(RecordedEpisode, AHistoryThatDiffersBeginsASequence) {
  ASSERT_OK_AND_ASSIGN(const Completion episode,
                       EpisodeOfCalls({Call({1, 2}, {3}), Call({1, 2, 8}, {4}),
                                       Call({1, 2, 3, 20}, {5}), Call({1, 2, 8, 4, 21}, {6})},
                                      0));
  const auto samples = Samples(episode);
  ASSERT_EQ(samples.size(), 2u);
  EXPECT_EQ(samples[0].index(), 0);
  EXPECT_EQ(samples[1].index(), 1);
  EXPECT_EQ(samples[0].group_id(), samples[1].group_id());
  ASSERT_EQ(samples[0].segments_size(), 4);
  EXPECT_THAT(IdsOf(samples[0].segments(3)), ElementsAre(5));
  ASSERT_EQ(samples[1].segments_size(), 4);
  EXPECT_THAT(IdsOf(samples[1].segments(0)), ElementsAre(1, 2, 8));
  EXPECT_THAT(IdsOf(samples[1].segments(3)), ElementsAre(6));
}

TEST(RecordedEpisode, EachSampledTokenIsTrainedOnOnce) {
  // Two choices of one prompt; both are continued, one of them twice.
  const std::vector<RecordedCall> calls = {
      Call({1}, {2, 3}),        Call({1}, {2, 4}),        Call({1, 2, 4, 20}, {5}),
      Call({1, 2, 3, 20}, {6}), Call({1, 2, 3, 21}, {7}), Call({1, 2, 3, 21, 7, 22}, {8})};
  ASSERT_OK_AND_ASSIGN(const Completion episode, EpisodeOfCalls(calls, 0));
  std::multiset<uint32_t> sampled, expected;
  for (const RecordedCall& call : calls) {
    expected.insert(call.token_ids().begin(), call.token_ids().end());
  }
  const auto samples = Samples(episode);
  EXPECT_EQ(samples.size(), 3u);
  for (const common::v1::Sample& sample : samples) {
    for (const common::v1::Segment& segment : sample.segments()) {
      if (segment.kind() != SEGMENT_KIND_SAMPLED) continue;
      sampled.insert(segment.token_ids().begin(), segment.token_ids().end());
    }
  }
  EXPECT_EQ(sampled, expected);
  // The branch has what it shares with the first sequence as its prompt.
  EXPECT_THAT(IdsOf(samples[2].segments(0)), ElementsAre(1, 2, 3, 21));
}

// With one byte of experts per token: a letter for each token, in order; '\xFF' for the last sampled
// one. The first `shared` prompt tokens' are those of call `with`.
RecordedCall Routed(RecordedCall call, const std::string& prompt, const std::string& sampled,
                    int64_t shared = 0, int32_t with = 0) {
  call.set_prompt_routed_experts(prompt);
  call.set_routed_experts(sampled);
  call.set_shared_tokens(shared);
  call.set_shared_with(with);
  return call;
}

TEST(RecordedEpisode, EachTokenHasItsExperts) {
  const std::vector<RecordedCall> calls = {
      Routed(Call({1, 2}, {3, 4}), "ab", "c\xFF"),
      // Continues the first, whose last token it computed.
      Routed(Call({1, 2, 3, 4, 20}, {6}), "de", "\xFF", 3, 0),
      // Not a continuation: it shares some tokens with the first call, and has others.
      Routed(Call({1, 2, 3, 4, 30}, {7}), "f", "\xFF", 4, 1),
      // Continues the second.
      Routed(Call({1, 2, 3, 4, 20, 6, 21}, {8}), "gh", "\xFF", 5, 1)};
  ASSERT_OK_AND_ASSIGN(const Completion episode, EpisodeOfCalls(calls, 0));
  const std::vector<common::v1::Sample> samples = Samples(episode);
  ASSERT_EQ(samples.size(), 2u);
  const auto experts = [](const common::v1::Sample& sample) {
    std::string all;
    for (const common::v1::Segment& segment : sample.segments()) {
      all += segment.routed_experts() + "|";
    }
    return all;
  };
  EXPECT_EQ(experts(samples[0]), "ab|cd|e|g|h|\xFF|");
  EXPECT_EQ(experts(samples[1]), "abcdf|\xFF|");
}

TEST(RecordedEpisode, ExpertsThatBreakTheContractAreRefused) {
  const RecordedCall first = Routed(Call({1, 2}, {3, 4}), "ab", "c\xFF");
  const auto second = [](const std::string& prompt, int64_t shared, int32_t with) {
    return Routed(Call({1, 2, 3, 4, 20}, {6}), prompt, "\xFF", shared, with);
  };
  EXPECT_THAT(EpisodeOfCalls({first, second("d", 3, 0)}, 0).status(),
              StatusIs(absl::StatusCode::kInternal,
                       HasSubstr("recorded call 1: expected 1 bytes of experts for each of 2")));
  EXPECT_THAT(EpisodeOfCalls({first, second("de", 3, 5)}, 0).status(),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("that call 5 begins with too")));
  EXPECT_THAT(EpisodeOfCalls({Routed(Call({9}, {2}), "a", "\xFF"), second("de", 3, 0)}, 0).status(),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("3 tokens that call 0 begins with")));
  EXPECT_THAT(EpisodeOfCalls({first, second("", 5, 2), second("", 5, 1)}, 0).status(),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("no call has its experts")));
}

TEST(RecordedEpisode, TheRewardOfAnEpisodeIsThatOfItsSamples) {
  ASSERT_OK_AND_ASSIGN(Completion episode, EpisodeOfCalls({Call({1}, {2}), Call({5}, {6})}, 0));
  episode.reward = 0.5;
  episode.segments.back().reward = 0.5;
  for (const common::v1::Sample& sample : Samples(episode)) EXPECT_EQ(sample.reward(), 0.5);
}

TEST(RecordedEpisode, AnAbortedCallAbortsIt) {
  RecordedCall aborted = Call({1}, {2});
  aborted.set_finish_reason(common::v1::FINISH_REASON_ABORTED);
  ASSERT_OK_AND_ASSIGN(const Completion episode, EpisodeOfCalls({aborted, Call({3}, {4})}, 0));
  EXPECT_EQ(episode.finish_reason, common::v1::FINISH_REASON_ABORTED);
}

TEST(RecordedEpisode, RecordsThatBreakTheContractAreRefused) {
  EXPECT_THAT(EpisodeOfCalls({}, 0).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("made no call")));
  EXPECT_THAT(EpisodeOfCalls({Call({1}, {2})}, 8).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("trainer incarnation 9")));
  RecordedCall gap = Call({1}, {2, 3});
  gap.mutable_version_spans(0)->set_end(1);
  EXPECT_THAT(EpisodeOfCalls({gap}, 0).status(),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("cover 1 of 2 tokens")));
  RecordedCall unequal = Call({1}, {2, 3});
  unequal.mutable_logprobs()->RemoveLast();
  EXPECT_THAT(
      EpisodeOfCalls({unequal}, 0).status(),
      StatusIs(absl::StatusCode::kInternal, HasSubstr("found 1 prompt tokens, 2 tokens, 1")));
  RecordedCall promptless = Call({}, {2});
  EXPECT_THAT(EpisodeOfCalls({promptless}, 0).status(),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("expected a prompt")));
}

}  // namespace
}  // namespace tandem::driver
