// The rewarder with judges and reward models, alone and among other rewards.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/synchronization/mutex.h"
#include "common/config/load.h"
#include "common/images/image_digest.h"
#include "common/io/read_file.h"
#include "common/rpc/server.h"
#include "common/status/status_macros.h"
#include "tandem/rollout/v1/rollout_service.grpc.pb.h"
#include "tests/fakes/fake_judge.h"
#include "tests/support/picture_data.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tiny_model.h"
#include "tools/tandem/driver/part_scores.h"
#include "tools/tandem/driver/reward_parts.h"
#include "tools/tandem/driver/rewarder.h"

namespace tandem::driver {
namespace {

using ::tandem::testing::FakeJudge;
using ::tandem::testing::StatusIs;
using ::tandem::testing::TempFolder;
using ::testing::AllOf;
using ::testing::DoubleEq;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

// Groups of two completions, "right" and "wrong".
std::vector<Group> Groups(int count) {
  std::vector<Group> groups(count);
  for (int g = 0; g < count; ++g) {
    groups[g].prompt.row = g;
    groups[g].prompt.text = absl::StrCat("question ", g);
    groups[g].prompt.answer = "right";
    groups[g].prompt.token_ids = {2, 3};
    for (const char* text : {"right", "wrong"}) {
      Completion& completion = groups[g].completions.emplace_back();
      completion.text = text;
      completion.token_ids = {4, 5, static_cast<uint32_t>(text[0] == 'r' ? 6 : 7), 0};
      completion.finish_reason = common::v1::FINISH_REASON_STOP;
    }
  }
  return groups;
}

ChatPrompt Chat(const std::vector<std::pair<std::string, std::string>>& messages) {
  ChatPrompt chat{.messages = nlohmann::ordered_json::array()};
  for (const auto& [role, content] : messages) {
    chat.messages.push_back(nlohmann::ordered_json{{"role", role}, {"content", content}});
  }
  return chat;
}

http::Response Grade(const FakeJudge::Request& request) {
  return FakeJudge::Completion(absl::StrContains(request.text, "<response>\nright") ? "Score: 9"
                                                                                    : "Score: 2");
}

config::v1::RunConfig JudgeRun(const FakeJudge& server) {
  config::v1::RunConfig config = config::DefaultRunConfig();
  config.mutable_reward()->set_name("judge");
  config.mutable_reward()->mutable_judge()->set_url(server.url());
  config.mutable_reward()->mutable_judge()->set_model("m");
  config.mutable_reward()->mutable_judge()->set_retries(0);
  return config;
}

TEST(JudgeRewarder, RewardsWithTheJudgesScores) {
  FakeJudge server(Grade);
  ASSERT_OK_AND_ASSIGN(auto rewarder, Rewarder::Create(JudgeRun(server)));
  ASSERT_OK(rewarder->Check(absl::Seconds(30)));
  std::vector<Group> groups = Groups(3);
  ASSERT_OK(rewarder->Judge(groups));
  for (const Group& group : groups) {
    EXPECT_OK(group.judgement);
    EXPECT_DOUBLE_EQ(group.completions[0].reward, 0.9);
    EXPECT_DOUBLE_EQ(group.completions[1].reward, 0.2);
  }
}

TEST(JudgeRewarder, AFailureTouchesItsGroupAlone) {
  FakeJudge server([](const FakeJudge::Request& request) {
    if (absl::StrContains(request.text, "question 1")) return http::Response{.code = 503};
    return Grade(request);
  });
  ASSERT_OK_AND_ASSIGN(auto rewarder, Rewarder::Create(JudgeRun(server)));
  std::vector<Group> groups = Groups(3);
  ASSERT_OK(rewarder->Judge(groups));
  EXPECT_OK(groups[0].judgement);
  EXPECT_OK(groups[2].judgement);
  EXPECT_THAT(groups[1].judgement,
              StatusIs(absl::StatusCode::kUnavailable,
                       AllOf(HasSubstr("row 2 of the data set, reward"), HasSubstr("HTTP 503"))));
  EXPECT_EQ(groups[1].num_failed_judgements, 2);
  // Judged again, as after a resume, it may succeed.
  FakeJudge better(Grade);
  ASSERT_OK_AND_ASSIGN(auto again, Rewarder::Create(JudgeRun(better)));
  ASSERT_OK(again->Judge(groups));
  EXPECT_OK(groups[1].judgement);
  EXPECT_EQ(groups[1].num_failed_judgements, 0);
}

TEST(JudgeRewarder, ReadsTheMessagesOfAChat) {
  FakeJudge server(Grade);
  config::v1::RunConfig config = JudgeRun(server);
  config.mutable_reward()->mutable_judge()->set_template_("<{prompt}>{completion}");
  config.mutable_reward()->mutable_judge()->set_scale(1);
  ASSERT_OK_AND_ASSIGN(auto rewarder, Rewarder::Create(config));
  EXPECT_TRUE(ReadsMessages(config.reward()));
  EXPECT_FALSE(NeedsAnswer(config.reward()));
  std::vector<Group> groups = Groups(2);
  for (Group& group : groups) {
    group.prompt.text = "<|im_start|>user\n...";
    group.prompt.chat = Chat({{"user", "hello"}});
    group.completions.resize(1);
  }
  groups[1].prompt.chat = Chat({{"system", "be kind"}, {"user", "hello"}});
  ASSERT_OK(rewarder->Judge(groups));
  std::vector<std::string> texts;
  for (const auto& request : server.requests()) texts.push_back(request.text);
  EXPECT_THAT(texts,
              UnorderedElementsAre("<hello>right", "<system:\nbe kind\n\nuser:\nhello>right"));
}

// A picture of the test, at hand.
PromptImage Picture(int squares) {
  const std::string file = testing::SquaresPng(squares, 0);
  return {absl::StrCat("data:;base64,", absl::Base64Escape(file)), images::ImageDigest(file)};
}

std::string UrlOfPicture(int squares) {
  return absl::StrCat("data:image/png;base64,",
                      absl::Base64Escape(testing::SquaresPng(squares, 0)));
}

class PicturedJudgeTest : public ::testing::Test {
 protected:
  PicturedJudgeTest() : server_(Grade), config_(JudgeRun(server_)) {
    config::v1::JudgeConfig& judge = *config_.mutable_reward()->mutable_judge();
    judge.set_template_("<{prompt}>{completion}");
    judge.set_scale(1);
    judge.set_images(true);
    group_.resize(1);
    Prompt& prompt = group_[0].prompt;
    prompt.token_ids = {2, 3};
    prompt.images = {Picture(1)};
    prompt.image_placeholder = "<|image_pad|>";
    Completion& completion = group_[0].completions.emplace_back();
    completion.text = "right";
    completion.token_ids = {4};
  }

  // The parts of the request for the group's only completion.
  std::vector<std::string> Parts() {
    auto rewarder = Rewarder::Create(config_);
    EXPECT_OK(rewarder.status());
    EXPECT_OK((*rewarder)->Judge(group_));
    EXPECT_OK(group_[0].judgement);
    std::vector<std::string> out;
    const std::vector<FakeJudge::Request> requests = server_.requests();
    for (const auto& part : requests.at(0).body["messages"][0]["content"]) {
      out.push_back(part["type"] == "text" ? part["text"].get<std::string>()
                                           : part["image_url"]["url"].get<std::string>());
    }
    return out;
  }

  FakeJudge server_;
  config::v1::RunConfig config_;
  std::vector<Group> group_;
};

TEST_F(PicturedJudgeTest, SeesThePicturesWhereAChatHasThem) {
  Prompt& prompt = group_[0].prompt;
  prompt.images.push_back(Picture(2));
  prompt.chat = ChatPrompt{.messages = nlohmann::ordered_json::parse(R"([
      {"role": "system", "content": "look"},
      {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image"},
                                   {"type": "text", "text": "b<|image_pad|>c"}]}])")};
  EXPECT_THAT(Parts(), ElementsAre("<system:\nlook\n\nuser:\na", UrlOfPicture(1), "\nb",
                                   UrlOfPicture(2), "c>right"));
}

TEST_F(PicturedJudgeTest, SeesThePicturesOfATextAndOfTokens) {
  group_[0].prompt.text = "how many <|image_pad|>?";
  EXPECT_THAT(Parts(), ElementsAre("<how many ", UrlOfPicture(1), "?>right"));
}

TEST_F(PicturedJudgeTest, SeesWhatAnEnvironmentShows) {
  group_[0].prompt.text = "<|image_pad|>?";
  Completion& completion = group_[0].completions[0];
  completion.text = "1[]2";
  completion.segments = {{common::v1::SEGMENT_KIND_SAMPLED, 1, 0},
                         {common::v1::SEGMENT_KIND_ENVIRONMENT, 1, 0, {Picture(3)}, {{1, 3}}},
                         {common::v1::SEGMENT_KIND_SAMPLED, 1, 0},
                         // The past again, and a picture that is new.
                         {common::v1::SEGMENT_KIND_PROMPT,
                          1,
                          0,
                          {Picture(1), Picture(3), Picture(4)},
                          {{-1, -1}, {-1, -1}, {4, 4}}}};
  EXPECT_THAT(Parts(),
              ElementsAre("<", UrlOfPicture(1), "?>1", UrlOfPicture(3), "2", UrlOfPicture(4)));
}

TEST_F(PicturedJudgeTest, SeesWhatAnAgentsCallsHadBeforeItsAnswer) {
  group_[0].prompt.text = "<|image_pad|>?";
  group_[0].completions[0].segments = {
      {common::v1::SEGMENT_KIND_PROMPT, 1, 0, {Picture(1), Picture(2)}},
      {common::v1::SEGMENT_KIND_SAMPLED, 1, 0},
      {common::v1::SEGMENT_KIND_PROMPT, 1, 0, {Picture(2), Picture(3)}}};
  EXPECT_THAT(Parts(),
              ElementsAre("<", UrlOfPicture(1), "?>", UrlOfPicture(2), UrlOfPicture(3), "right"));
}

TEST_F(PicturedJudgeTest, AJudgeThatIsNotShownPicturesJudgesNone) {
  config_.mutable_reward()->mutable_judge()->set_images(false);
  ASSERT_OK_AND_ASSIGN(auto rewarder, Rewarder::Create(config_));
  group_[0].prompt.text = "question";
  EXPECT_THAT(rewarder->Judge(group_),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("row 1 of the data set: it has pictures"),
                             HasSubstr("set reward.judge.images=true"))));
  group_[0].prompt.images.clear();
  EXPECT_OK(rewarder->Judge(group_));
  group_[0].completions[0].segments = {
      {common::v1::SEGMENT_KIND_ENVIRONMENT, 1, 0, {Picture(3)}, {{0, 0}}}};
  EXPECT_THAT(rewarder->Judge(group_),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("it has pictures")));
}

TEST(JudgeRewarder, SaysWhichRewardSeesPictures) {
  config::v1::RewardConfig reward = config::DefaultRunConfig().reward();
  EXPECT_EQ(RewardWithoutSight(reward).key, "");
  EXPECT_EQ(RewardWithSight(reward), "");
  reward.add_rewards()->set_name("exact_match");
  reward.add_rewards()->set_name("judge");
  EXPECT_EQ(RewardWithoutSight(reward).key, "reward.rewards[1].judge.images");
  reward.mutable_rewards(1)->mutable_judge()->set_images(true);
  EXPECT_EQ(RewardWithoutSight(reward).key, "");
  EXPECT_EQ(RewardWithSight(reward), "reward.rewards[1].judge.images");
  reward.add_rewards()->set_name("model");
  EXPECT_EQ(RewardWithoutSight(reward).key, "reward.rewards[2].model");
}

TEST(JudgeRewarder, ATemplateWithTheAnswerNeedsIt) {
  FakeJudge server(Grade);
  config::v1::RunConfig config = JudgeRun(server);
  EXPECT_FALSE(NeedsAnswer(config.reward()));
  config.mutable_reward()->mutable_judge()->set_template_("{answer} {completion}");
  EXPECT_TRUE(NeedsAnswer(config.reward()));
}

TEST(JudgeRewarder, APromptOfTokensAloneIsRefused) {
  FakeJudge server(Grade);
  ASSERT_OK_AND_ASSIGN(auto rewarder, Rewarder::Create(JudgeRun(server)));
  std::vector<Group> groups = Groups(1);
  groups[0].prompt.text.clear();
  EXPECT_THAT(rewarder->Judge(groups),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("row 1 of the data set"), HasSubstr("token ids"))));
}

// A rollout whose reward is the last token's id, or what the test says.
class FakeRewardModel final : public rollout::v1::RolloutService::Service {
 public:
  FakeRewardModel() {
    auto server = rpc::Server::Start({.listen = "127.0.0.1:0", .role = "rollout"}, {this});
    EXPECT_OK(server.status());
    if (server.ok()) server_ = *std::move(server);
    info.set_architecture("LlamaForSequenceClassification");
    info.set_vocab_size(15);
    info.set_max_model_len(4096);
  }

  grpc::Status GetServerInfo(grpc::ServerContext*, const rollout::v1::GetServerInfoRequest*,
                             rollout::v1::GetServerInfoResponse* response) override {
    *response = info;
    return grpc::Status::OK;
  }

  grpc::Status Score(grpc::ServerContext*, const rollout::v1::ScoreRequest* request,
                     rollout::v1::ScoreResponse* response) override {
    absl::MutexLock lock(&mu_);
    requests_.push_back({request->token_ids().begin(), request->token_ids().end()});
    if (num_busy_ > 0) {
      --num_busy_;
      return grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, "queue full");
    }
    if (is_too_long) return grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "too long");
    response->add_class_logits(
        static_cast<float>(request->token_ids(request->token_ids_size() - 2)));
    return grpc::Status::OK;
  }

  void SetBusy(int num_calls) {
    absl::MutexLock lock(&mu_);
    num_busy_ = num_calls;
  }
  std::vector<std::vector<uint32_t>> requests() {
    absl::MutexLock lock(&mu_);
    return requests_;
  }
  const std::string& address() const { return server_->address(); }

  rollout::v1::GetServerInfoResponse info;  // set before use
  bool is_too_long = false;

 private:
  absl::Mutex mu_;
  std::vector<std::vector<uint32_t>> requests_ ABSL_GUARDED_BY(mu_);
  int num_busy_ ABSL_GUARDED_BY(mu_) = 0;
  std::unique_ptr<rpc::Server> server_;
};

class ModelRewarderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    config_ = config::DefaultRunConfig();
    config_.mutable_model()->set_path(testing::WriteTinyModel(folder_));
    config_.mutable_reward()->set_name("model");
    config_.mutable_reward()->mutable_model()->set_endpoint(server_.address());
    config_.mutable_reward()->set_timeout_s(30);
  }

  // A folder of a reward model, with the policy's tokenizer.
  std::string WriteRewardFolder(const TempFolder& folder) {
    const std::string path = testing::WriteTinyModel(folder);
    nlohmann::json config = testing::TinyModelConfig();
    config["architectures"] = {"LlamaForSequenceClassification"};
    folder.Write("model/config.json", config.dump());
    return path;
  }

  // The same tokens in another file: as far as anybody can tell, another tokenizer.
  static void WriteTokenizerAgain(const TempFolder& folder) {
    ASSERT_OK_AND_ASSIGN(const std::string text, io::ReadFile(folder / "model/tokenizer.json"));
    folder.Write("model/tokenizer.json", nlohmann::json::parse(text).dump(1));
  }

  TempFolder folder_;
  FakeRewardModel server_;
  config::v1::RunConfig config_;
};

TEST_F(ModelRewarderTest, SendsTheIdsThatWereSampled) {
  ASSERT_OK_AND_ASSIGN(auto rewarder, Rewarder::Create(config_));
  ASSERT_OK(rewarder->Check(absl::Seconds(30)));
  EXPECT_THAT(rewarder->served_folders(), ::testing::IsEmpty());
  server_.SetBusy(3);
  std::vector<Group> groups = Groups(1);
  ASSERT_OK(rewarder->Judge(groups));
  EXPECT_OK(groups[0].judgement);
  EXPECT_EQ(groups[0].completions[0].reward, 6);
  EXPECT_EQ(groups[0].completions[1].reward, 7);
  EXPECT_THAT(server_.requests(), ::testing::Contains(ElementsAre(2, 3, 4, 5, 6, 0)));
  EXPECT_EQ(server_.requests().size(), 5u);
}

TEST_F(ModelRewarderTest, SeesNoPictures) {
  ASSERT_OK_AND_ASSIGN(auto rewarder, Rewarder::Create(config_));
  ASSERT_OK(rewarder->Check(absl::Seconds(30)));
  std::vector<Group> groups = Groups(1);
  groups[0].completions[1].segments = {
      {common::v1::SEGMENT_KIND_ENVIRONMENT, 4, 0, {Picture(3)}, {{0, 0}}}};
  EXPECT_THAT(rewarder->Judge(groups), StatusIs(absl::StatusCode::kUnimplemented,
                                                AllOf(HasSubstr("row 1 of the data set"),
                                                      HasSubstr("a reward model sees none"))));
  EXPECT_TRUE(server_.requests().empty());
}

TEST_F(ModelRewarderTest, RendersTextForAnotherTokenizer) {
  const TempFolder other;
  const std::string path = WriteRewardFolder(other);
  config_.mutable_reward()->mutable_model()->set_path(path);
  ASSERT_OK_AND_ASSIGN(auto same, Rewarder::Create(config_));
  ASSERT_OK(same->Check(absl::Seconds(30)));
  // 1 is 3, + is 12, and what is no digit is 1.
  WriteTokenizerAgain(other);
  other.Write("model/chat_template.jinja",
              "{% for m in messages %}{{ m.role[0] }}{{ m.content }}+{% endfor %}");
  ASSERT_OK_AND_ASSIGN(auto rewarder, Rewarder::Create(config_));
  ASSERT_OK(rewarder->Check(absl::Seconds(30)));
  std::vector<Group> groups = Groups(2);
  groups.front().prompt.text = "12+";
  groups.front().completions = {groups.front().completions[0]};
  groups.front().completions[0].text = "34";
  groups.back().completions = groups.front().completions;
  groups.back().prompt.chat = Chat({{"1", "2"}});
  ASSERT_OK(rewarder->Judge(groups));
  EXPECT_THAT(server_.requests(), UnorderedElementsAre(ElementsAre(3, 4, 12, 5, 6),
                                                       ElementsAre(3, 4, 12, 1, 5, 6, 12)));
}

TEST_F(ModelRewarderTest, EpisodesNeedThePolicysTokenizer) {
  const TempFolder other;
  config_.mutable_reward()->mutable_model()->set_path(WriteRewardFolder(other));
  WriteTokenizerAgain(other);
  config_.mutable_environment()->set_name(config::v1::ENVIRONMENT_NAME_CALCULATOR);
  EXPECT_THAT(Rewarder::Create(config_).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("reward.model"), HasSubstr("another tokenizer"))));
}

TEST_F(ModelRewarderTest, RefusesARolloutThatServesAnotherModel) {
  ASSERT_OK_AND_ASSIGN(auto rewarder, Rewarder::Create(config_));
  server_.info.set_architecture("LlamaForCausalLM");
  EXPECT_THAT(rewarder->Check(absl::Seconds(30)),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("reward: "), HasSubstr("serves LlamaForCausalLM"))));
  server_.info.set_architecture("LlamaForSequenceClassification");
  server_.info.set_vocab_size(14);
  EXPECT_THAT(std::string(rewarder->Check(absl::Seconds(30)).message()),
              HasSubstr("it has another tokenizer"));
  server_.info.set_vocab_size(15);
  server_.info.set_max_model_len(100);
  EXPECT_THAT(std::string(rewarder->Check(absl::Seconds(30)).message()),
              HasSubstr("takes 100 tokens"));
}

TEST_F(ModelRewarderTest, ASequenceThatItCannotScoreLosesItsGroup) {
  server_.is_too_long = true;
  ASSERT_OK_AND_ASSIGN(auto rewarder, Rewarder::Create(config_));
  ASSERT_OK(rewarder->Check(absl::Seconds(30)));
  std::vector<Group> groups = Groups(1);
  ASSERT_OK(rewarder->Judge(groups));
  EXPECT_THAT(groups[0].judgement,
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("too long")));
  EXPECT_EQ(groups[0].num_failed_judgements, 2);
}

TEST_F(ModelRewarderTest, AFolderToServeNeedsWeights) {
  const TempFolder other;
  config_.mutable_reward()->mutable_model()->clear_endpoint();
  config_.mutable_reward()->mutable_model()->set_path(WriteRewardFolder(other));
  EXPECT_THAT(std::string(Rewarder::Create(config_).status().message()),
              AllOf(HasSubstr("reward.model"), HasSubstr(other.path())));
}

TEST_F(ModelRewarderTest, SeveralRewardsHaveMetricsOfTheirOwn) {
  FakeJudge judge(Grade);
  const config::v1::RunConfig defaults = config::DefaultRunConfig();
  *config_.mutable_reward() = defaults.reward();
  auto* by_judge = config_.mutable_reward()->add_rewards();
  by_judge->set_name("judge");
  by_judge->set_weight(2);
  by_judge->mutable_judge()->set_url(judge.url());
  by_judge->mutable_judge()->set_model("m");
  auto* by_model = config_.mutable_reward()->add_rewards();
  by_model->set_name("model");
  by_model->set_weight(0.5);
  by_model->mutable_model()->set_endpoint(server_.address());
  config_.mutable_reward()->add_rewards()->set_name("exact_match");
  ASSERT_OK_AND_ASSIGN(auto rewarder, Rewarder::Create(config_));
  ASSERT_OK(rewarder->Check(absl::Seconds(30)));
  std::vector<Group> groups = Groups(2);

  ASSERT_OK(rewarder->Judge(groups));

  EXPECT_THAT(
      groups[0].completions[0].part_scores,
      UnorderedElementsAre(Pair("judge", DoubleEq(0.9)), Pair("model", 6), Pair("exact_match", 1)));
  EXPECT_DOUBLE_EQ(groups[0].completions[0].reward, 2 * 0.9 + 0.5 * 6 + 1);
  EXPECT_DOUBLE_EQ(groups[1].completions[1].reward, 2 * 0.2 + 0.5 * 7);
  Metrics metrics;
  AddPartScoreMetrics(groups, metrics);
  EXPECT_DOUBLE_EQ(metrics.at("reward/scores/judge/mean"), 0.55);
  EXPECT_DOUBLE_EQ(metrics.at("reward/scores/model/mean"), 6.5);
  EXPECT_DOUBLE_EQ(metrics.at("reward/scores/exact_match/mean"), 0.5);
}

TEST(JudgeRewarder, SaysInWhichPartOfSeveralTheErrorIs) {
  config::v1::RunConfig config = config::DefaultRunConfig();
  config.mutable_reward()->add_rewards()->set_name("exact_match");
  auto* judge = config.mutable_reward()->add_rewards();
  judge->set_name("judge");
  judge->mutable_judge()->set_url("http://127.0.0.1:1/v1");
  judge->mutable_judge()->set_model("m");
  ASSERT_OK_AND_ASSIGN(auto rewarder, Rewarder::Create(config));
  EXPECT_THAT(std::string(rewarder->Check(absl::Milliseconds(10)).message()),
              HasSubstr("reward.rewards[1]: the judge at http://127.0.0.1:1/v1/chat/completions"));
  judge->mutable_judge()->set_pattern("(");
  EXPECT_THAT(std::string(Rewarder::Create(config).status().message()),
              HasSubstr("reward.rewards[1].judge.pattern"));
}

}  // namespace
}  // namespace tandem::driver
