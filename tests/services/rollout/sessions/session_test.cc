// What a session allows, and what it records.
#include "services/rollout/sessions/session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/time/clock.h"
#include "tests/support/status_matchers.h"

namespace tandem::rollout {
namespace {

using ::tandem::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class SessionTest : public ::testing::Test {
 protected:
  std::shared_ptr<Session> Make(absl::Duration duration = absl::Minutes(1),
                                int64_t max_all_bytes = 1 << 20) {
    return std::make_shared<Session>(request_, absl::Now() + duration, all_bytes_, max_all_bytes);
  }

  static v1::RecordedCall Recorded(std::initializer_list<uint32_t> ids) {
    v1::RecordedCall out;
    out.mutable_token_ids()->Add(ids.begin(), ids.end());
    return out;
  }

  // The limit of tokens that a call gets.
  static absl::StatusOr<int64_t> LimitOf(Session& session, int64_t num_prompt_tokens,
                                         std::optional<int64_t> asked = std::nullopt,
                                         int32_t n = 1) {
    GenerationRequest generation;
    generation.max_tokens = asked;
    generation.n = n;
    const auto call = session.Begin(num_prompt_tokens, generation);
    if (!call.ok()) return call.status();
    return generation.max_tokens.value_or(-1);
  }

  v1::OpenSessionRequest request_;
  std::shared_ptr<std::atomic<int64_t>> all_bytes_ = std::make_shared<std::atomic<int64_t>>(0);
};

TEST_F(SessionTest, ItsParametersReplaceThoseOfACall) {
  v1::SamplingParams sampling;
  sampling.set_temperature(0.5);
  sampling.set_top_k(7);
  sampling.add_stop("#");
  sampling.add_stop_token_ids(3);
  GenerationRequest generation;
  generation.filter = {.temperature = 2, .top_k = 1, .top_p = 0.1, .min_p = 0.2};
  generation.penalties.presence = 1;
  generation.penalties.logit_bias = {{1, 5.0f}};
  generation.stop = {"!"};

  SetSampling(sampling, generation);

  EXPECT_EQ(generation.filter.temperature, 0.5);
  EXPECT_EQ(generation.filter.top_k, 7);
  EXPECT_EQ(generation.filter.top_p, 1.0);
  EXPECT_EQ(generation.filter.min_p, 0.0);
  EXPECT_FALSE(generation.penalties.any());
  EXPECT_THAT(generation.stop, ElementsAre("!", "#"));
  EXPECT_THAT(generation.stop_token_ids, ElementsAre(3));
}

TEST_F(SessionTest, BoundsEachCallAndTheirSum) {
  request_.mutable_sampling()->set_max_tokens(10);
  request_.set_max_tokens(24);
  request_.set_max_length(100);
  const auto session = Make();
  EXPECT_THAT(LimitOf(*session, 20), testing::IsOkAndHolds(10));
  EXPECT_THAT(LimitOf(*session, 20, 4), testing::IsOkAndHolds(4));
  EXPECT_THAT(LimitOf(*session, 95), testing::IsOkAndHolds(5));
  EXPECT_THAT(LimitOf(*session, 20, std::nullopt, 3), testing::IsOkAndHolds(8));
  EXPECT_THAT(LimitOf(*session, 100).status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("expected a prompt of fewer than 100 tokens")));
  GenerationRequest generation;
  ASSERT_OK_AND_ASSIGN(auto call, session->Begin(20, generation));
  call.Record(0, Recorded({1, 2, 3, 4, 5, 6, 7, 8, 9, 10}), std::nullopt, {});
  {
    ASSERT_OK_AND_ASSIGN(auto second, session->Begin(20, generation));
    EXPECT_EQ(generation.max_tokens, 4);  // the first one may still sample ten
    EXPECT_THAT(LimitOf(*session, 20).status(),
                StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("try again")));
    second.Record(0, Recorded({1, 2, 3, 4}), std::nullopt, {});
  }
  {
    Session::Call ended = std::move(call);  // its reservation ends with it
  }
  EXPECT_THAT(LimitOf(*session, 20), testing::IsOkAndHolds(10));
  GenerationRequest last;
  ASSERT_OK_AND_ASSIGN(auto third, session->Begin(20, last));
  third.Record(0, Recorded({1, 2, 3, 4, 5, 6, 7, 8, 9, 10}), std::nullopt, {});
  EXPECT_THAT(
      LimitOf(*session, 20).status(),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("has sampled 24 of its 24 tokens")));
}

TEST_F(SessionTest, CallsWithoutASeedGetDifferentOnes) {
  request_.mutable_sampling()->set_seed(5);
  const auto session = Make(), again = Make();
  GenerationRequest first, second, of_again, own;
  own.seed = 9;
  ASSERT_OK(session->Begin(1, first).status());
  ASSERT_OK(session->Begin(1, second).status());
  ASSERT_OK(session->Begin(1, own).status());
  ASSERT_OK(again->Begin(1, of_again).status());
  EXPECT_EQ(first.seed, 5u);
  EXPECT_NE(first.seed, second.seed);
  EXPECT_EQ(first.seed, of_again.seed);
  EXPECT_EQ(own.seed, 9u);
}

TEST_F(SessionTest, ReturnsItsCallsInTheOrderInWhichTheyBegan) {
  const auto session = Make();
  GenerationRequest generation;
  generation.n = 2;
  ASSERT_OK_AND_ASSIGN(auto first, session->Begin(1, generation));
  ASSERT_OK_AND_ASSIGN(auto second, session->Begin(1, generation));
  second.Record(0, Recorded({3}), std::nullopt, {});
  first.Record(1, Recorded({2}), std::nullopt, {});
  first.Record(0, Recorded({1}), std::nullopt, {});

  const v1::CloseSessionResponse closed = session->Close();

  ASSERT_EQ(closed.calls_size(), 3);
  for (int i = 0; i < 3; ++i) EXPECT_THAT(closed.calls(i).token_ids(), ElementsAre(i + 1));
  second.Record(1, Recorded({4}), std::nullopt, {});  // too late
  EXPECT_THAT(session->CheckOpen(),
              StatusIs(absl::StatusCode::kUnauthenticated, "the session is closed"));
  EXPECT_THAT(session->Begin(1, generation).status(),
              StatusIs(absl::StatusCode::kUnauthenticated, "the session is closed"));
}

// With one byte of experts per token.
v1::RecordedCall Routed(std::initializer_list<uint32_t> prompt, std::initializer_list<uint32_t> ids,
                        const std::string& of_prompt, const std::string& of_ids) {
  v1::RecordedCall out;
  out.mutable_prompt_token_ids()->Add(prompt.begin(), prompt.end());
  out.mutable_token_ids()->Add(ids.begin(), ids.end());
  out.set_prompt_routed_experts(of_prompt);
  out.set_routed_experts(of_ids);
  return out;
}

TEST_F(SessionTest, RecordsTheExpertsOfATokenOnce) {
  request_.set_return_routed_experts(true);
  const auto session = Make();
  GenerationRequest generation;
  ASSERT_OK_AND_ASSIGN(auto first, session->Begin(1, generation));
  EXPECT_TRUE(generation.return_routed_experts);
  ASSERT_OK_AND_ASSIGN(auto second, session->Begin(1, generation));
  ASSERT_OK_AND_ASSIGN(auto third, session->Begin(1, generation));
  // The second call is the first that ends.
  second.Record(0, Routed({1, 2}, {3, 4}, "ab", "c?"), std::nullopt, {});
  first.Record(0, Routed({1, 2, 3, 4, 9}, {5}, "abcde", "?"), std::nullopt, {});
  third.Record(0, Routed({1, 2}, {7}, "ab", "?"), std::nullopt, {});
  third.Record(1, Routed({8}, {7}, "z", "?"), std::nullopt, {});

  const v1::CloseSessionResponse closed = session->Close();

  ASSERT_EQ(closed.calls_size(), 4);
  EXPECT_EQ(closed.calls(1).prompt_routed_experts(), "ab");
  // The last token that was sampled had not been computed.
  EXPECT_EQ(closed.calls(0).prompt_routed_experts(), "de");
  EXPECT_EQ(closed.calls(0).shared_tokens(), 3);
  EXPECT_EQ(closed.calls(0).shared_with(), 1);
  EXPECT_EQ(closed.calls(2).prompt_routed_experts(), "");
  EXPECT_EQ(closed.calls(2).shared_tokens(), 2);
  EXPECT_EQ(closed.calls(3).prompt_routed_experts(), "z");
  EXPECT_EQ(closed.calls(3).shared_tokens(), 0);
}

// Equal placeholders of different pictures have different experts.
TEST_F(SessionTest, ExpertsBehindAnotherImageAreNotShared) {
  request_.set_return_routed_experts(true);
  const auto session = Make();
  GenerationRequest generation;
  const auto with_image = [](v1::RecordedCall call, const std::string& digest) {
    call.add_image_digests(digest);
    return call;
  };
  ASSERT_OK_AND_ASSIGN(auto first, session->Begin(1, generation));
  ASSERT_OK_AND_ASSIGN(auto second, session->Begin(1, generation));
  ASSERT_OK_AND_ASSIGN(auto third, session->Begin(1, generation));
  first.Record(0, with_image(Routed({1, 2}, {3}, "ab", "?"), "x"), std::nullopt, {});
  second.Record(0, with_image(Routed({1, 2}, {3}, "ac", "?"), "y"), std::nullopt, {});
  third.Record(0, with_image(Routed({1, 2}, {3}, "ab", "?"), "x"), std::nullopt, {});

  const v1::CloseSessionResponse closed = session->Close();

  ASSERT_EQ(closed.calls_size(), 3);
  EXPECT_EQ(closed.calls(1).prompt_routed_experts(), "ac");
  EXPECT_EQ(closed.calls(2).prompt_routed_experts(), "");
  EXPECT_EQ(closed.calls(2).shared_with(), 0);
}

TEST_F(SessionTest, KeepsRoomForTheExpertsOfRunningCalls) {
  request_.set_return_routed_experts(true);
  request_.mutable_sampling()->set_max_tokens(500);
  const auto session =
      std::make_shared<Session>(request_, absl::Now() + absl::Minutes(1), all_bytes_,
                                int64_t{1} << 30, /*routed_bytes_per_token=*/1 << 14);
  GenerationRequest generation;
  generation.prompt_ids.assign(100, 1);
  {
    ASSERT_OK_AND_ASSIGN(auto first, session->Begin(100, generation));
    EXPECT_THAT(session->Begin(100, generation).status(),
                StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("try again after them")));
  }
  EXPECT_OK(session->Begin(100, generation).status());
  generation.prompt_ids.assign(600, 1);
  EXPECT_THAT(session->Begin(600, generation).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("experts of this call's")));
}

TEST_F(SessionTest, EndsWithItsTime) {
  const auto session = Make(absl::ZeroDuration());
  EXPECT_THAT(session->CheckOpen(),
              StatusIs(absl::StatusCode::kUnauthenticated, "the session has expired"));
}

TEST_F(SessionTest, HoldsABoundedAmountOfMemory) {
  GenerationRequest generation;
  {
    const auto session = Make();
    EXPECT_THAT(session->Begin(kMaxSessionBytes, generation).status(),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("leaves no room")));
    ASSERT_OK_AND_ASSIGN(auto call, session->Begin(1, generation));
    call.Record(0, Recorded({1, 2}), PastTurn{.token_ids = {1, 2}, .text = "12", .end_token = ""},
                {"digest"});
    EXPECT_GT(*all_bytes_, 10);
    EXPECT_NE(session->FindChat({"digest"}), nullptr);
    const auto small = Make(absl::Minutes(1), /*max_all_bytes=*/10);
    EXPECT_THAT(small->Begin(1, generation).status(),
                StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("memory")));
  }
  EXPECT_EQ(*all_bytes_, 0);
}

}  // namespace
}  // namespace tandem::rollout
