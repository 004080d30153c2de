// Episodes of several turns: which tokens follow which, and what the sample keeps of them.
#include "tools/tandem/driver/multi_turn_episode.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <memory>

#include "tests/support/chat_templates.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tiny_model.h"
#include "tools/tandem/driver/episode_sequences.h"
#include "tools/tandem/driver/prompt_source.h"
#include "tools/tandem/driver/sample_builder.h"
#include "tools/tandem/environment/calculator.h"

namespace tandem::driver {
namespace {

using environment::Reply;
using environment::SampledTurn;
using nlohmann::ordered_json;
using ::tandem::testing::kForgetfulTemplate;
using ::tandem::testing::kPlainTemplate;
using ::tandem::testing::StatusIs;
using ::tandem::testing::TempFolder;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Answers as the test says, and notes what it saw.
class Scripted : public environment::Environment {
 public:
  struct Seen {
    std::deque<absl::StatusOr<Reply>> replies;
    std::vector<SampledTurn> turns;
    Done later;  // of a step without a reply
  };
  explicit Scripted(Seen& seen) : seen_(seen) {}

  std::optional<absl::StatusOr<Reply>> Step(const SampledTurn& turn, Done done) override {
    seen_.turns.push_back(turn);
    if (seen_.replies.empty()) {
      seen_.later = std::move(done);
      return std::nullopt;
    }
    absl::StatusOr<Reply> reply = std::move(seen_.replies.front());
    seen_.replies.pop_front();
    return reply;
  }

 private:
  Seen& seen_;
};

Reply Says(const std::string& text) {
  Reply out;
  out.messages = ordered_json::array({{{"role", "tool"}, {"content", text}}});
  return out;
}

Reply IsDone(double reward = 0) {
  Reply out;
  out.done = true;
  out.reward = reward;
  return out;
}

class MultiTurnEpisodeTest : public ::testing::Test {
 protected:
  MultiTurnEpisodeTest() { UseTemplate(kPlainTemplate); }

  void UseTemplate(const std::string& text) {
    const std::string model = testing::WriteTinyModel(folder_);
    folder_.Write("model/chat_template.jinja", text);
    tokenizer_ = *LoadTokenizerIfAny(model);
  }

  std::vector<uint32_t> Ids(const std::string& text) const {
    const auto ids = tokenizer_->Encode(text, /*add_special_tokens=*/false);
    return {ids->begin(), ids->end()};
  }
  std::string Text(const std::vector<uint32_t>& ids) const {
    const std::vector<int32_t> signed_ids(ids.begin(), ids.end());
    return *tokenizer_->Decode(signed_ids, /*skip_special_tokens=*/false);
  }

  // Begins an episode after the prompt "1<eos>,=", a chat, or "1=", plain text.
  void Begin(bool in_chat = true) {
    prompt_ = Prompt();
    prompt_.text = in_chat ? "1<eos>,=" : "1=";
    prompt_.token_ids = Ids(prompt_.text);
    if (in_chat) {
      prompt_.chat =
          ChatPrompt{.messages = ordered_json::array({{{"role", "user"}, {"content", "1"}}}),
                     .tools = nullptr,
                     .variables = nullptr};
    }
    episode_ =
        MakeMultiTurnEpisode(prompt_, std::make_unique<Scripted>(seen_), limits_, tokenizer_.get());
    ASSERT_OK_AND_ASSIGN(turn_, episode_->FirstTurn());
  }

  // The policy says `text`, whose version is `version`. Returns the ids of the next turn as text, or
  // "end".
  absl::StatusOr<std::string> Say(
      const std::string& text, int64_t version = 0,
      common::v1::FinishReason reason = common::v1::FINISH_REASON_STOP) {
    Completion completion;
    completion.token_ids = Ids(text);
    for (size_t i = 0; i < completion.token_ids.size(); ++i) {
      completion.logprobs.push_back(-1.0f - static_cast<float>(i));
      completion.processed_logprobs.push_back(-2.0f - static_cast<float>(i));
    }
    common::v1::VersionSpan& span = completion.version_spans.emplace_back();
    span.set_policy_version(version);
    span.set_end(static_cast<int64_t>(completion.token_ids.size()));
    completion.finish_reason = reason;
    completion.num_prompt_tokens = static_cast<int64_t>(turn_.token_ids.size());
    completion.num_cached_tokens = completion.num_prompt_tokens / 2;
    if (routes_) {
      // Two bytes a token: those of the prompt tell the request, those of the completion the token.
      completion.prompt_routed_experts =
          std::string(2 * completion.num_prompt_tokens, static_cast<char>('a' + num_requests_++));
      for (size_t i = 0; i + 1 < completion.token_ids.size(); ++i) {
        completion.routed_experts.append(2, static_cast<char>('0' + i));
      }
      completion.routed_experts.append(2, '\xFF');
    }
    EXPECT_TRUE(episode_->Continue(std::move(completion), [] {}));
    return Next();
  }

  absl::StatusOr<std::string> Next() {
    absl::StatusOr<std::optional<Turn>> turn = episode_->NextTurn();
    if (!turn.ok()) return turn.status();
    if (!turn->has_value()) return "end";
    turn_ = **turn;
    return Text(turn_.token_ids);
  }

  std::vector<common::v1::Sample> Samples(Completion completion) const {
    Group group;
    group.prompt = prompt_;
    group.completions.push_back(std::move(completion));
    return ToSamples(1, {group}, 1);
  }

  const TempFolder folder_;
  std::unique_ptr<tokenizer::Tokenizer> tokenizer_;
  EpisodeLimits limits_ = {.max_turns = 10, .max_tokens = 100, .max_turn_tokens = 20};
  Prompt prompt_;
  Scripted::Seen seen_;
  std::unique_ptr<Episode> episode_;
  Turn turn_;
  bool routes_ = false;  // completions come with experts
  int num_requests_ = 0;
};

TEST_F(MultiTurnEpisodeTest, KeepsSampledTokensAndAppendsWhatTheTemplateAdds) {
  seen_.replies = {Says("7"), Says("8"), IsDone()};
  Begin();
  EXPECT_EQ(Text(turn_.token_ids), "1<eos>,=");
  EXPECT_THAT(Say("2<eos>", 3), ::tandem::testing::IsOkAndHolds("1<eos>,=2<eos>,7<eos>,="));
  EXPECT_THAT(Say("34<eos>", 4),
              ::tandem::testing::IsOkAndHolds("1<eos>,=2<eos>,7<eos>,=34<eos>,8<eos>,="));
  EXPECT_THAT(Say("5<eos>", 4), ::tandem::testing::IsOkAndHolds("end"));

  const Completion out = episode_->Take();
  EXPECT_EQ(out.finish_reason, common::v1::FINISH_REASON_STOP);
  EXPECT_EQ(Text(out.token_ids), "2<eos>,7<eos>,=34<eos>,8<eos>,=5<eos>");
  EXPECT_THAT(out.segments, ElementsAre(EpisodeSegment{common::v1::SEGMENT_KIND_SAMPLED, 2, 0},
                                        EpisodeSegment{common::v1::SEGMENT_KIND_ENVIRONMENT, 5, 0},
                                        EpisodeSegment{common::v1::SEGMENT_KIND_SAMPLED, 3, 0},
                                        EpisodeSegment{common::v1::SEGMENT_KIND_ENVIRONMENT, 5, 0},
                                        EpisodeSegment{common::v1::SEGMENT_KIND_SAMPLED, 2, 0}));
  EXPECT_EQ(out.facts.num_turns, 3);
  // Half of each prompt of the second and third request.
  EXPECT_EQ(out.facts.num_prompt_tokens, 11 + 19);
  EXPECT_EQ(out.facts.num_cached_tokens, 5 + 9);

  const auto samples = Samples(out);
  ASSERT_EQ(samples.size(), 1u);
  ASSERT_EQ(samples[0].segments_size(), 6);
  EXPECT_EQ(samples[0].segments(0).kind(), common::v1::SEGMENT_KIND_PROMPT);
  EXPECT_EQ(samples[0].segments(2).kind(), common::v1::SEGMENT_KIND_ENVIRONMENT);
  EXPECT_EQ(samples[0].segments(2).logprobs_size(), 0);
  const common::v1::Segment& second = samples[0].segments(3);
  EXPECT_EQ(second.kind(), common::v1::SEGMENT_KIND_SAMPLED);
  EXPECT_THAT(second.logprobs(), ElementsAre(-2.0f, -3.0f, -4.0f));
  ASSERT_EQ(second.version_spans_size(), 1);
  EXPECT_EQ(second.version_spans(0).policy_version(), 4);
  EXPECT_EQ(second.version_spans(0).begin(), 0);
  EXPECT_EQ(second.version_spans(0).end(), 3);
}

TEST_F(MultiTurnEpisodeTest, TheEnvironmentSeesEachTurnAlone) {
  seen_.replies = {Says("7"), IsDone()};
  Begin();
  ASSERT_OK(Say("23<eos>").status());
  ASSERT_OK(Say("4<eos>").status());
  ASSERT_EQ(seen_.turns.size(), 2u);
  EXPECT_EQ(seen_.turns[0].text, "23");
  EXPECT_TRUE(seen_.turns[0].is_ended);
  EXPECT_EQ(seen_.turns[1].text, "4");
  EXPECT_EQ(seen_.turns[1].number, 2);
  EXPECT_EQ(seen_.turns[1].token_ids, Ids("4<eos>"));
}

TEST_F(MultiTurnEpisodeTest, ATurnThatAStopStringEndedGetsItsEnd) {
  seen_.replies = {Says("7")};
  Begin();
  EXPECT_THAT(Say("2+"), ::tandem::testing::IsOkAndHolds("1<eos>,=2+<eos>,7<eos>,="));
  EXPECT_FALSE(seen_.turns[0].is_ended);
}

TEST_F(MultiTurnEpisodeTest, WithoutATemplateTextsFollowAsTheyAre) {
  seen_.replies = {Says("7,"), IsDone()};
  Begin(/*in_chat=*/false);
  EXPECT_THAT(Say("2="), ::tandem::testing::IsOkAndHolds("1=2=7,"));
  EXPECT_THAT(Say("3"), ::tandem::testing::IsOkAndHolds("end"));
  EXPECT_EQ(episode_->Take().text, "2=7,3");
}

TEST_F(MultiTurnEpisodeTest, RewardsStandOnTheLastTokenOfTheirTurn) {
  Reply first = Says("7");
  first.reward = 0.25;
  seen_.replies = {first, IsDone(1)};
  Begin();
  ASSERT_OK(Say("23<eos>").status());
  ASSERT_OK(Say("4<eos>").status());
  const Completion out = episode_->Take();
  EXPECT_EQ(out.segments[0].reward, 0.25);
  EXPECT_EQ(out.segments[2].reward, 1);
}

TEST_F(MultiTurnEpisodeTest, ALimitOfTokensEndsTheEpisode) {
  // 5 tokens of room after "2<eos>": as many as the observation has, so none for the policy.
  limits_.max_tokens = 7;
  seen_.replies = {Says("7")};
  Begin();
  EXPECT_EQ(turn_.max_tokens, 7);
  EXPECT_THAT(Say("2<eos>"), ::tandem::testing::IsOkAndHolds("end"));
  const Completion out = episode_->Take();
  EXPECT_EQ(out.finish_reason, common::v1::FINISH_REASON_LENGTH);
  EXPECT_EQ(Text(out.token_ids), "2<eos>");
  EXPECT_EQ(out.text, "2");
  EXPECT_EQ(out.logprobs.size(), 2u);
}

TEST_F(MultiTurnEpisodeTest, TheLastTurnGetsTheTokensThatAreLeft) {
  limits_.max_tokens = 10;
  limits_.max_turn_tokens = 4;
  seen_.replies = {Says("7"), IsDone(3)};
  Begin();
  EXPECT_EQ(turn_.max_tokens, 4);
  ASSERT_OK(Say("2<eos>").status());
  EXPECT_EQ(turn_.max_tokens, 3);
  EXPECT_THAT(Say("234", 0, common::v1::FINISH_REASON_LENGTH),
              ::tandem::testing::IsOkAndHolds("end"));
  EXPECT_TRUE(seen_.turns[1].is_cut);
  const Completion out = episode_->Take();
  EXPECT_EQ(out.finish_reason, common::v1::FINISH_REASON_LENGTH);
  EXPECT_EQ(out.segments[2].reward, 3);
}

TEST_F(MultiTurnEpisodeTest, TheLongestSequenceOfTheModelIsALimit) {
  limits_.max_length = 4 + 2 + 5 + 3;  // prompt, turn, observation, room
  seen_.replies = {Says("7"), Says("8")};
  Begin();
  ASSERT_OK(Say("2<eos>").status());
  EXPECT_EQ(turn_.max_tokens, 3);
  EXPECT_THAT(Say("3<eos>"), ::tandem::testing::IsOkAndHolds("end"));
  EXPECT_EQ(episode_->Take().finish_reason, common::v1::FINISH_REASON_LENGTH);
}

TEST_F(MultiTurnEpisodeTest, ALimitOfTurnsEndsTheEpisode) {
  limits_.max_turns = 2;
  seen_.replies = {Says("7"), Says("8")};
  Begin();
  ASSERT_OK(Say("2<eos>").status());
  EXPECT_THAT(Say("3<eos>"), ::tandem::testing::IsOkAndHolds("end"));
  const Completion out = episode_->Take();
  EXPECT_EQ(out.finish_reason, common::v1::FINISH_REASON_MAX_TURNS);
  EXPECT_EQ(Text(out.token_ids), "2<eos>,7<eos>,=3<eos>");
}

TEST_F(MultiTurnEpisodeTest, ATemplateThatRewritesThePastFails) {
  UseTemplate(kForgetfulTemplate);
  seen_.replies = {Says("7")};
  Begin();
  EXPECT_THAT(Say("2<eos>").status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("when it adds the observation"),
                             HasSubstr("expected \"1<eos>,=2<eos>,\""),
                             HasSubstr("environment.on_template_mismatch=split"))));
}

TEST_F(MultiTurnEpisodeTest, ATemplateThatRewritesThePastSplitsTheEpisode) {
  UseTemplate(kForgetfulTemplate);
  limits_.splits = true;
  seen_.replies = {Says("7"), IsDone(1)};
  Begin();
  EXPECT_THAT(Say("2<eos>"), ::tandem::testing::IsOkAndHolds("1<eos>,=<eos>,7<eos>,="));
  EXPECT_THAT(Say("3<eos>"), ::tandem::testing::IsOkAndHolds("end"));

  Completion out = episode_->Take();
  out.reward = 5;
  const auto samples = Samples(out);
  ASSERT_EQ(samples.size(), 2u);
  const auto ids = [&](int sample, int segment) {
    const auto& found = samples[sample].segments(segment).token_ids();
    return Text({found.begin(), found.end()});
  };
  EXPECT_EQ(ids(0, 0) + "|" + ids(0, 1), "1<eos>,=|2<eos>");
  EXPECT_EQ(ids(1, 0) + "|" + ids(1, 1), "1<eos>,=<eos>,7<eos>,=|3<eos>");
  EXPECT_EQ(samples[0].group_id(), samples[1].group_id());
  EXPECT_EQ(samples[0].index(), 0);
  EXPECT_EQ(samples[1].index(), 1);
  EXPECT_EQ(samples[0].reward(), 5);
  EXPECT_EQ(samples[1].reward(), 5);
  // Of every sampled token the version is known.
  EXPECT_EQ(samples[1].segments(1).version_spans(0).begin(), 0);
  EXPECT_EQ(samples[1].segments(1).version_spans(0).end(), 2);
}

TEST_F(MultiTurnEpisodeTest, AnErrorOfTheEnvironmentIsReported) {
  seen_.replies = {environment::DropEpisode(absl::AbortedError("gone"))};
  Begin();
  const auto next = Say("2<eos>");
  EXPECT_EQ(environment::LossOf(next.status()), environment::Loss::kDrop);
}

TEST_F(MultiTurnEpisodeTest, NoThreadWaitsForAnEnvironment) {
  Begin();
  Completion completion;
  completion.token_ids = Ids("2<eos>");
  completion.logprobs = completion.processed_logprobs = {-1, -1};
  completion.finish_reason = common::v1::FINISH_REASON_STOP;
  bool is_ready = false;
  EXPECT_FALSE(episode_->Continue(std::move(completion), [&] { is_ready = true; }));
  EXPECT_FALSE(is_ready);
  seen_.later(Says("7"));
  EXPECT_TRUE(is_ready);
  EXPECT_THAT(Next(), ::tandem::testing::IsOkAndHolds("1<eos>,=2<eos>,7<eos>,="));
}

TEST_F(MultiTurnEpisodeTest, AnEnvironmentMayAnswerWithTokens) {
  Reply reply;
  reply.token_ids = {9, 9};
  seen_.replies = {reply, IsDone()};
  prompt_.token_ids = {2, 13};
  episode_ = MakeMultiTurnEpisode(prompt_, std::make_unique<Scripted>(seen_), limits_,
                                  /*tokenizer=*/nullptr);
  ASSERT_OK_AND_ASSIGN(turn_, episode_->FirstTurn());
  ASSERT_OK(Say("2<eos>").status());
  EXPECT_THAT(turn_.token_ids, ElementsAre(2, 13, 4, 0, 9, 9));
}

TEST_F(MultiTurnEpisodeTest, TheCalculatorCompletesANotationWithinTheTurn) {
  // The tiny vocabulary has no "<": "=" outside of a notation goes on.
  prompt_ = Prompt();
  prompt_.text = "1=";
  prompt_.token_ids = Ids("1=");
  episode_ =
      MakeMultiTurnEpisode(prompt_, environment::MakeCalculator(false), limits_, tokenizer_.get());
  ASSERT_OK_AND_ASSIGN(turn_, episode_->FirstTurn());
  EXPECT_THAT(turn_.stop, ElementsAre("=", "</tool_call>"));
  EXPECT_THAT(Say("2+3="), ::tandem::testing::IsOkAndHolds("1=2+3="));
  EXPECT_THAT(Say("5<eos>"), ::tandem::testing::IsOkAndHolds("end"));
  const Completion out = episode_->Take();
  EXPECT_EQ(out.text, "2+3=5");
  EXPECT_EQ(out.facts.num_turns, 1);
}

TEST_F(MultiTurnEpisodeTest, ALaterTurnTellsTheExpertsThatAnEarlierOneLeftOpen) {
  routes_ = true;
  seen_.replies = {Says("7"), IsDone()};
  Begin(/*in_chat=*/false);
  ASSERT_OK(Say("23").status());
  EXPECT_THAT(Say("45"), ::tandem::testing::IsOkAndHolds("end"));
  const common::v1::Sample sample = Samples(episode_->Take())[0];

  ASSERT_EQ(sample.segments_size(), 4);
  EXPECT_EQ(sample.segments(0).routed_experts(), "aaaa");  // of the first request
  EXPECT_EQ(sample.segments(1).routed_experts(), "00bb");  // its last token: of the second
  EXPECT_EQ(sample.segments(2).routed_experts(), "bb");    // the observation
  EXPECT_EQ(sample.segments(3).routed_experts(), "00\xFF\xFF");
}

TEST(EpisodeSequences, RewardsOfObservationsPassToTheTurnBefore) {
  Completion completion;
  completion.token_ids = {1, 2, 3, 4, 5};
  completion.token_rewards = {0.5, 0.25, 1, 2, 4};
  completion.segments = {{common::v1::SEGMENT_KIND_SAMPLED, 2, 0},
                         {common::v1::SEGMENT_KIND_ENVIRONMENT, 2, 0},
                         {common::v1::SEGMENT_KIND_SAMPLED, 1, 0}};

  const auto sequences = SequencesOf({9}, completion);

  ASSERT_EQ(sequences.size(), 1u);
  ASSERT_EQ(sequences[0].parts.size(), 3u);
  EXPECT_THAT(sequences[0].parts[0].token_rewards, ElementsAre(0.5, 3.25));
  EXPECT_THAT(sequences[0].parts[1].token_rewards, IsEmpty());
  EXPECT_THAT(sequences[0].parts[2].token_rewards, ElementsAre(4));
}

}  // namespace
}  // namespace tandem::driver
