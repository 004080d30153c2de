// The experts of completions on their way from the rollouts to the samples.
#include "tools/tandem/driver/completion_experts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/status_matchers.h"
#include "tools/tandem/driver/driver_state.h"
#include "tools/tandem/driver/partial_group.h"
#include "tools/tandem/driver/sample_builder.h"

namespace tandem::driver {
namespace {

using ::tandem::testing::StatusIs;
using ::testing::HasSubstr;

const std::string kUnknown = "\xFF\xFF";

rollout::v1::GenerateRequest Request() {
  rollout::v1::GenerateRequest request;
  request.mutable_token_ids()->add_ids(7);
  request.mutable_token_ids()->add_ids(8);
  request.mutable_sampling()->set_n(1);
  request.mutable_sampling()->set_max_tokens(10);
  request.set_return_routed_experts(true);
  return request;
}

// Of two bytes per token.
rollout::v1::GenerateResponse Response(int num_tokens, const std::string& experts,
                                       const std::string& of_prompt = "") {
  rollout::v1::GenerateResponse response;
  for (int i = 0; i < num_tokens; ++i) {
    response.add_token_ids(3);
    response.add_logprobs(-1);
  }
  response.add_version_spans()->set_end(num_tokens);
  response.set_routed_experts(experts);
  if (of_prompt.empty()) return response;
  response.set_num_prompt_tokens(2);
  response.set_prompt_routed_experts(of_prompt);
  return response;
}

TEST(CompletionExperts, ArriveOneTokenAfterTheirs) {
  PartialGroup group(Request());
  group.NextRequest();
  ASSERT_OK(group.Append(Response(1, "", "aabb")));
  ASSERT_OK(group.Append(Response(1, "cc")));
  rollout::v1::GenerateResponse last = Response(1, "dd" + kUnknown);
  last.set_finish_reason(common::v1::FINISH_REASON_STOP);
  ASSERT_OK(group.Append(last));
  const Completion completion = group.Take()[0];
  EXPECT_EQ(completion.prompt_routed_experts, "aabb");
  EXPECT_EQ(completion.routed_experts, "ccdd" + kUnknown);
}

TEST(CompletionExperts, OfTokensBeforeABrokenStreamAreUnknown) {
  PartialGroup group(Request());
  group.NextRequest();
  ASSERT_OK(group.Append(Response(1, "", "aabb")));
  ASSERT_OK(group.Append(Response(1, "cc")));
  // Another replica continues, and computes the prompt again.
  EXPECT_EQ(group.NextRequest().begun(0).token_ids_size(), 2);
  rollout::v1::GenerateResponse last = Response(2, "ee" + kUnknown, "xxyy");
  last.set_finish_reason(common::v1::FINISH_REASON_STOP);
  ASSERT_OK(group.Append(last));
  const Completion completion = group.Take()[0];
  EXPECT_EQ(completion.prompt_routed_experts, "aabb");
  EXPECT_EQ(completion.routed_experts, "cc" + kUnknown + "ee" + kUnknown);
}

TEST(CompletionExperts, OfMoreTokensThanThereAreAreRefused) {
  PartialGroup group(Request());
  group.NextRequest();
  EXPECT_THAT(group.Append(Response(1, "aabb", "aabb")),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("4 bytes of experts")));
}

TEST(CompletionExperts, GoIntoTheSegmentsOfTheSample) {
  Group group;
  group.prompt.token_ids = {1, 2};
  Completion& completion = group.completions.emplace_back();
  completion.token_ids = {3, 4, 5};
  completion.prompt_routed_experts = "aabb";
  completion.routed_experts = "ccddee";
  const common::v1::Sample one_turn = ToSamples(1, {group}, 1)[0];
  EXPECT_EQ(one_turn.segments(0).routed_experts(), "aabb");
  EXPECT_EQ(one_turn.segments(1).routed_experts(), "ccddee");

  completion.segments = {{common::v1::SEGMENT_KIND_SAMPLED, 1, 0},
                         {common::v1::SEGMENT_KIND_ENVIRONMENT, 1, 0},
                         {common::v1::SEGMENT_KIND_SAMPLED, 1, 0}};
  const common::v1::Sample turns = ToSamples(1, {group}, 1)[0];
  ASSERT_EQ(turns.segments_size(), 4);
  EXPECT_EQ(turns.segments(1).routed_experts(), "cc");
  EXPECT_EQ(turns.segments(2).routed_experts(), "dd");
  EXPECT_EQ(turns.segments(3).routed_experts(), "ee");
}

TEST(CompletionExperts, AreKeptWithTheDriversState) {
  Completion completion;
  completion.routed_experts = "cc";
  completion.prompt_routed_experts = "aa";
  const Completion restored = FromProto(ToProto(completion));
  EXPECT_EQ(restored.routed_experts, "cc");
  EXPECT_EQ(restored.prompt_routed_experts, "aa");
}

TEST(CompletionExperts, ThatBecomeKnownLaterFillUpUnknownOnes) {
  std::string experts = "aa" + kUnknown + "cc" + kUnknown;
  FillUnknown("bbxx", 2, 2, experts);
  EXPECT_EQ(experts, "aabbcc" + kUnknown);
  FillUnknown("zzzzdd", 2, 2, experts);
  EXPECT_EQ(experts, "aabbccdd");
  FillUnknown("", 0, 0, experts);
  EXPECT_EQ(experts, "aabbccdd");
}

}  // namespace
}  // namespace tandem::driver
