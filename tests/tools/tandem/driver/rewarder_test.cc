// The rewarder with a RewardService that the test serves, with Python functions, and with several
// rewards at once.
#include "tools/tandem/driver/rewarder.h"

#include <cmath>
#include <limits>

#include "absl/synchronization/mutex.h"
#include "common/config/load.h"
#include "common/rpc/server.h"
#include "common/status/status_macros.h"
#include "tandem/reward/v1/reward_service.grpc.pb.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"
#include "tools/tandem/driver/part_scores.h"
#include "tools/tandem/driver/reward_parts.h"

namespace tandem::driver {
namespace {

using ::tandem::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Pair;
using ::testing::StartsWith;
using ::testing::UnorderedElementsAre;

namespace v1 = reward::v1;

// Rewards a completion with its length, or does what `answer` says.
class LengthReward final : public v1::RewardService::Service {
 public:
  grpc::Status ComputeRewards(grpc::ServerContext*, const v1::ComputeRewardsRequest* request,
                              v1::ComputeRewardsResponse* response) override {
    absl::MutexLock lock(&mu);
    requests.push_back(*request);
    if (answer) return answer(*response);
    for (const auto& completion : request->completions()) {
      response->add_rewards(static_cast<double>(completion.completion().size()));
    }
    return grpc::Status::OK;
  }

  absl::Mutex mu;
  std::vector<v1::ComputeRewardsRequest> requests ABSL_GUARDED_BY(mu);
  std::function<grpc::Status(v1::ComputeRewardsResponse&)> answer ABSL_GUARDED_BY(mu);
};

std::vector<Group> Groups(int count, int size) {
  std::vector<Group> groups(count);
  for (int g = 0; g < count; ++g) {
    groups[g].prompt.row = g;
    groups[g].prompt.text = "question";
    groups[g].prompt.answer = "42";
    groups[g].prompt.token_ids = {1, 2};
    groups[g].prompt.fields = {{"difficulty", g}};
    for (int i = 0; i < size; ++i) {
      Completion& completion = groups[g].completions.emplace_back();
      completion.text = std::string((g + i) % 7, 'x');
      completion.token_ids = {7, 8, 9};
      completion.finish_reason = common::v1::FINISH_REASON_STOP;
    }
  }
  return groups;
}

class ServiceRewarderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(
        server_, rpc::Server::Start({.listen = "127.0.0.1:0", .role = "reward"}, {&service_}));
    config_ = config::DefaultRunConfig();
    config_.mutable_reward()->set_name("service");
    config_.mutable_reward()->set_endpoint(server_->address());
    config_.mutable_reward()->set_timeout_s(30);
  }

  absl::Status Judge(std::vector<Group>& groups) {
    ASSIGN_OR_RETURN(auto rewarder, Rewarder::Create(config_));
    return rewarder->Judge(groups);
  }

  void Answer(std::function<grpc::Status(v1::ComputeRewardsResponse&)> answer) {
    absl::MutexLock lock(&service_.mu);
    service_.answer = std::move(answer);
  }

  LengthReward service_;
  std::unique_ptr<rpc::Server> server_;
  config::v1::RunConfig config_;
};

TEST_F(ServiceRewarderTest, ARewardOutsideOfTheRangeNamesTheRow) {
  for (const double reward : {1e308, -2e9, std::numeric_limits<double>::infinity()}) {
    Answer([reward](v1::ComputeRewardsResponse& response) {
      response.add_rewards(1);
      response.add_rewards(reward);
      return grpc::Status::OK;
    });
    std::vector<Group> groups = Groups(2, 1);
    EXPECT_THAT(Judge(groups),
                StatusIs(absl::StatusCode::kInternal,
                         AllOf(HasSubstr("rewards[1], of row 2 of the data set"),
                               HasSubstr("expected a finite number from -1e+09 to 1e+09"))));
  }
}

TEST_F(ServiceRewarderTest, EveryCompletionHasItsRewardHoweverManyCallsItTakes) {
  std::vector<Group> groups = Groups(75, 8);
  ASSERT_OK(Judge(groups));
  for (const Group& group : groups) {
    for (const Completion& completion : group.completions) {
      EXPECT_EQ(completion.reward, static_cast<double>(completion.text.size()));
    }
  }
  absl::MutexLock lock(&service_.mu);
  EXPECT_EQ(service_.requests.size(), 3u);
  const v1::Completion& first = service_.requests[0].completions(0);
  EXPECT_EQ(first.prompt(), "question");
  EXPECT_EQ(first.answer(), "42");
  EXPECT_EQ(first.finish_reason(), common::v1::FINISH_REASON_STOP);
  EXPECT_EQ(first.prompt_token_ids_size(), 2);
  EXPECT_EQ(first.completion_token_ids_size(), 3);
  EXPECT_EQ(first.row_json(), R"({"difficulty":0})");
}

// Image bytes, for example.
TEST_F(ServiceRewarderTest, ARowWithBytesThatAreNoTextIsSentWithReplacements) {
  std::vector<Group> groups = Groups(1, 1);
  groups[0].prompt.fields = {{"image", "\x89PNG"}};
  ASSERT_OK(Judge(groups));
  absl::MutexLock lock(&service_.mu);
  EXPECT_EQ(service_.requests[0].completions(0).row_json(), R"({"image":"�PNG"})");
}

TEST_F(ServiceRewarderTest, AServiceThatIsAwayForAMomentIsAskedAgain) {
  auto failures = std::make_shared<int>(2);
  Answer([failures](v1::ComputeRewardsResponse& response) {
    if ((*failures)-- > 0) return grpc::Status(grpc::StatusCode::UNAVAILABLE, "restarting");
    response.add_rewards(0.5);
    return grpc::Status::OK;
  });
  std::vector<Group> groups = Groups(1, 1);
  ASSERT_OK(Judge(groups));
  EXPECT_EQ(groups[0].completions[0].reward, 0.5);
}

TEST_F(ServiceRewarderTest, WhatTheServiceRefusesNamesServiceAndRows) {
  Answer([](v1::ComputeRewardsResponse&) {
    return grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "no unit in '42'");
  });
  std::vector<Group> groups = Groups(2, 2);
  EXPECT_THAT(Judge(groups), StatusIs(absl::StatusCode::kInvalidArgument,
                                      AllOf(HasSubstr("no unit"), HasSubstr(server_->address()),
                                            HasSubstr("row 1 of the data set"))));
}

TEST_F(ServiceRewarderTest, ASilentServiceEndsAtTheDeadline) {
  config_.mutable_reward()->set_timeout_s(0.3);
  Answer([](v1::ComputeRewardsResponse&) {
    absl::SleepFor(absl::Seconds(1));
    return grpc::Status::OK;
  });
  std::vector<Group> groups = Groups(1, 1);
  EXPECT_THAT(Judge(groups),
              StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr(server_->address())));
}

TEST_F(ServiceRewarderTest, TokensHaveTheRewardsThatTheServiceGaveThem) {
  Answer([](v1::ComputeRewardsResponse& response) {
    response.add_rewards(6);
    response.add_rewards(1);
    v1::TokenRewards* first = response.add_token_rewards();
    for (const double value : {1, 2, 0}) first->add_values(value);
    response.add_token_rewards();  // none
    return grpc::Status::OK;
  });
  std::vector<Group> groups = Groups(1, 2);
  ASSERT_OK(Judge(groups));
  EXPECT_EQ(groups[0].completions[0].reward, 6);
  EXPECT_EQ(groups[0].completions[0].token_rewards, std::vector<double>({1, 2, 0}));
  EXPECT_TRUE(groups[0].completions[1].token_rewards.empty());
}

TEST_F(ServiceRewarderTest, TokenRewardsThatAreTooFewAreAnError) {
  Answer([](v1::ComputeRewardsResponse& response) {
    response.add_rewards(1);
    response.add_token_rewards()->add_values(1);
    return grpc::Status::OK;
  });
  std::vector<Group> groups = Groups(1, 1);
  EXPECT_THAT(Judge(groups), StatusIs(absl::StatusCode::kInternal,
                                      AllOf(HasSubstr("token_rewards[0], of row 1"),
                                            HasSubstr("each of the 3 completion_token_ids"))));
}

TEST_F(ServiceRewarderTest, RewardsThatAreMissingOrNoNumbersAreErrors) {
  Answer([](v1::ComputeRewardsResponse& response) {
    response.add_rewards(1);
    return grpc::Status::OK;
  });
  std::vector<Group> groups = Groups(1, 2);
  EXPECT_THAT(Judge(groups), StatusIs(absl::StatusCode::kInternal,
                                      HasSubstr("returned 1 rewards for 2 completions")));
  // 1e308 is a number, and its square is none.
  for (const double reward : {std::numeric_limits<double>::quiet_NaN(), 1e308}) {
    Answer([reward](v1::ComputeRewardsResponse& response) {
      response.add_rewards(1);
      response.add_rewards(reward);
      return grpc::Status::OK;
    });
    EXPECT_THAT(Judge(groups),
                StatusIs(absl::StatusCode::kInternal,
                         AllOf(HasSubstr("rewards[1], of row 1 of the data set"),
                               HasSubstr(std::isnan(reward) ? "found nan" : "found 1e+308"))));
  }
}

TEST_F(ServiceRewarderTest, AServiceIsFoundBeforeItIsAskedToJudge) {
  ASSERT_OK_AND_ASSIGN(auto rewarder, Rewarder::Create(config_));
  EXPECT_OK(rewarder->Check(absl::Seconds(30)));
  Answer([](v1::ComputeRewardsResponse&) {
    return grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "no completions");
  });
  EXPECT_OK(rewarder->Check(absl::Seconds(30)));  // it has answered
  server_.reset();
  EXPECT_THAT(std::string(rewarder->Check(absl::Milliseconds(200)).message()),
              AllOf(StartsWith("reward: no RewardService answered at "), HasSubstr("start it")));
}

TEST_F(ServiceRewarderTest, AnInterruptEndsTheWaitForAService) {
  ASSERT_OK_AND_ASSIGN(auto rewarder, Rewarder::Create(config_));
  server_.reset();
  // Without the interrupt the wait would outlast the test.
  EXPECT_THAT(rewarder->Check(absl::Hours(1), [] { return true; }),
              StatusIs(absl::StatusCode::kCancelled, "interrupted"));
}

TEST_F(ServiceRewarderTest, RewardsAreSummedWithTheirWeights) {
  config_.mutable_reward()->Clear();
  config_.mutable_reward()->set_python("/usr/bin/python3");
  config_.mutable_reward()->set_workers(1);
  config_.mutable_reward()->set_timeout_s(60);
  const tandem::testing::TempFolder folder;
  const auto add = [this] { return config_.mutable_reward()->add_rewards(); };
  auto* exact = add();
  exact->set_name("exact_match");
  exact->set_weight(2);
  add()->set_endpoint(server_->address());
  auto* only_long = add();
  only_long->set_weight(-0.5);
  only_long->set_path(folder.Write(
      "long.py",
      "def f(completions, **kwargs): return [1.0 if len(c) > 1 else None for c in completions]"));

  std::vector<Group> groups = Groups(1, 3);  // "", "x", "xx"
  groups[0].completions[1].text = "42";
  ASSERT_OK(Judge(groups));

  const Completion& empty = groups[0].completions[0];
  const Completion& right = groups[0].completions[1];
  const Completion& both = groups[0].completions[2];
  EXPECT_EQ(empty.reward, 0);
  EXPECT_THAT(empty.part_scores, UnorderedElementsAre(Pair("exact_match", 0), Pair("service", 0)));
  EXPECT_EQ(right.reward, 2 * 1 + 2 - 0.5);
  EXPECT_THAT(right.part_scores,
              UnorderedElementsAre(Pair("exact_match", 1), Pair("service", 2), Pair("long", 1)));
  EXPECT_EQ(both.reward, 2 - 0.5);
  Metrics metrics;
  AddPartScoreMetrics(groups, metrics);
  EXPECT_THAT(metrics, UnorderedElementsAre(Pair("reward/scores/exact_match/mean", 1.0 / 3),
                                            Pair("reward/scores/service/mean", 4.0 / 3),
                                            Pair("reward/scores/long/mean", 1)));
}

TEST(Rewarder, ARewardThatEveryFunctionLeavesOutNamesTheRow) {
  const tandem::testing::TempFolder folder;
  config::v1::RunConfig config = config::DefaultRunConfig();
  config.mutable_reward()->set_python("/usr/bin/python3");
  config.mutable_reward()->set_path(
      folder.Write("none.py", "def f(completions, **kwargs): return [None for _ in completions]"));
  ASSERT_OK_AND_ASSIGN(auto rewarder, Rewarder::Create(config, folder / "reward.log"));
  std::vector<Group> groups = Groups(1, 2);
  EXPECT_THAT(rewarder->Judge(groups),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("row 1 of the data set"), HasSubstr("returned None"))));
}

TEST(RewardParts, EqualNamesGetLabelsOfTheirOwn) {
  config::v1::RewardConfig config;
  config.add_rewards()->set_name("regex");
  config.add_rewards()->set_path("rewards/format.py");
  config.add_rewards()->set_name("regex");
  const std::vector<RewardPart> parts = RewardParts(config);
  ASSERT_EQ(parts.size(), 3u);
  EXPECT_EQ(parts[0].label, "regex");
  EXPECT_EQ(parts[0].weight, 1);
  EXPECT_EQ(parts[1].label, "format");
  EXPECT_EQ(parts[2].label, "regex_2");
  EXPECT_EQ(RewardLabel(config), "weighted_sum");
  config.mutable_rewards(2)->set_name("regx");
  EXPECT_THAT(CheckRewardNames(config),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(StartsWith("reward.rewards[2].name: "), HasSubstr("mean regex?"))));
}

TEST(RewardParts, NeedAnAnswerIfOneOfThemDoes) {
  config::v1::RewardConfig config;
  config.set_name("exact_match");
  EXPECT_TRUE(NeedsAnswer(config));
  config.set_path("rewards/format.py");  // wins over the default name
  EXPECT_FALSE(NeedsAnswer(config));
  config.clear_path();
  config.add_rewards()->set_endpoint("localhost:1");
  config.add_rewards()->set_path("rewards/format.py");
  EXPECT_FALSE(NeedsAnswer(config));
  auto* regex = config.add_rewards();
  regex->set_name("regex");
  regex->set_pattern("(?:yes|no)");
  EXPECT_FALSE(NeedsAnswer(config));
  regex->set_pattern("answer: (.*)");
  EXPECT_TRUE(NeedsAnswer(config));
}

TEST(RewardParts, NoneStandsAlone) {
  config::v1::RunConfig config;
  config.mutable_reward()->set_name(kNoReward);
  EXPECT_OK(CheckRewardNames(config.reward()));
  EXPECT_FALSE(NeedsAnswer(config.reward()));
  EXPECT_THAT(
      Rewarder::Create(config).status(),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("reward.name: expected a reward")));
  config.mutable_reward()->add_rewards()->set_name(kNoReward);
  EXPECT_THAT(CheckRewardNames(config.reward()),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("reward.rewards[0].name")));
}

TEST(Rewarder, AServiceWithoutAnAddressIsRefused) {
  config::v1::RunConfig config;
  config.mutable_reward()->set_name("service");
  EXPECT_THAT(Rewarder::Create(config).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("reward.endpoint")));
}

}  // namespace
}  // namespace tandem::driver
