// tandem-trainer as processes: their end, in order and otherwise.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

#include "absl/strings/str_cat.h"
#include "common/rpc/channel.h"
#include "tests/services/trainer/service/trainer_processes.h"
#include "tests/services/trainer/service/trainer_test_support.h"
#include "tests/support/status_matchers.h"

namespace tandem::trainer {
namespace {

using ::tandem::testing::IsOk;
using ::tandem::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

class TrainerProcessTest : public ::testing::Test {
 protected:
  TrainerProcessTest()
      : folder_(MakeFolder(::testing::UnitTest::GetInstance()->current_test_info()->name())),
        config_(TinyConfig(folder_)) {}

  // The log of rank 0 of two, whose other rank never comes. Expects it to fail by itself.
  std::string AloneSays(const config::v1::RunConfig& config) {
    std::filesystem::create_directories(folder_);
    const std::string config_path = folder_ + "/config.yaml", log_path = folder_ + "/alone.log";
    EXPECT_OK(io::WriteFileAtomically(config_path, config::ToYaml(config)));
    const absl::StatusOr<int> port = net::ReservePort();
    EXPECT_OK(port.status());
    const char* bin = std::getenv("TANDEM_BIN");
    rpc::ChildProcessOptions options;
    options.argv = {absl::StrCat(bin == nullptr ? "build/bin" : bin, "/tandem-trainer"), "--config",
                    config_path};
    options.environment = {{"RANK", "0"},
                           {"LOCAL_RANK", "0"},
                           {"WORLD_SIZE", "2"},
                           {"MASTER_ADDR", "127.0.0.1"},
                           {"MASTER_PORT", absl::StrCat(port.value_or(0))}};
    options.log_path = log_path;
    std::filesystem::remove(log_path);
    const auto alone = rpc::ChildProcess::Start(std::move(options));
    EXPECT_OK(alone.status());
    if (!alone.ok()) return "";
    EXPECT_TRUE((*alone)->Wait(absl::Seconds(120)));
    EXPECT_EQ((*alone)->ExitDescription(), "exited with 1");
    std::ifstream log(log_path);
    return {std::istreambuf_iterator<char>(log), {}};
  }

  const std::string folder_;
  config::v1::RunConfig config_;
};

TEST_F(TrainerProcessTest, OfTwoRanksEndsInOrderWhenAsked) {
  config_.mutable_trainer()->set_ranks(2);
  ASSERT_OK_AND_ASSIGN(auto trainer, TrainerProcesses::Start(folder_, config_));
  TrainerClient client(trainer->address());
  ASSERT_THAT(client.TrainStep(1, v1::OBJECTIVE_SUPERVISED, RandomSamples(2, 2, 1)), IsOk());

  EXPECT_TRUE(trainer->StopInOrder());
}

TEST_F(TrainerProcessTest, RefusesItsConfigurationBeforeItWaitsForOtherRanks) {
  config_.mutable_trainer()->set_ranks(2);
  config::v1::RunConfig no_model = config_;
  no_model.mutable_model()->set_path(folder_ + "/no-model");
  config::v1::RunConfig no_weights = config_;  // its folder has a config.json only
  no_weights.mutable_model()->set_random_init(false);
  config::v1::RunConfig no_critic = config_;
  no_critic.mutable_algorithm()->set_adv_estimator(config::v1::ADV_ESTIMATOR_GAE);
  no_critic.mutable_critic()->mutable_model()->set_path(folder_ + "/no-critic");
  struct Case {
    const config::v1::RunConfig& config;
    const char* cause;
    const char* key;
  };

  for (const Case& c :
       {Case{no_model, "no-model", ""}, Case{no_weights, "model.safetensors", "model.path"},
        Case{no_critic, "no-critic", "critic.model.path"}}) {
    const std::string said = AloneSays(c.config);
    EXPECT_THAT(said, AllOf(HasSubstr(c.cause), HasSubstr(c.key)));
  }
}

TEST_F(TrainerProcessTest, GoesBackToTheStateItBeganWith) {
  config_.mutable_trainer()->set_ranks(2);
  config_.mutable_algorithm()->set_adv_estimator(config::v1::ADV_ESTIMATOR_GAE);
  ASSERT_OK_AND_ASSIGN(auto trainer, TrainerProcesses::Start(folder_, config_));
  TrainerClient client(trainer->address());
  const auto digest = [&]() -> std::string {
    v1::GetWeightDigestsResponse response;
    const auto context = rpc::MakeContext(absl::Seconds(60));
    EXPECT_TRUE(client.stub().GetWeightDigests(context.get(), {}, &response).ok());
    return response.model_digest();
  };
  v1::LoadCheckpointRequest begin_anew;
  begin_anew.set_initial_state(true);
  const std::string at_first = digest();
  // Where nothing was trained there is nothing to do, and the version stays.
  ASSERT_OK_AND_ASSIGN(const auto nothing, client.Load(begin_anew));
  EXPECT_EQ(nothing.policy_version(), client.GetModelInfo()->policy_version());

  std::vector<std::string> metrics;
  int64_t version = -1;
  for (int life = 0; life < 2; ++life) {
    std::string said;
    for (int step = 1; step <= 2; ++step) {
      ASSERT_OK_AND_ASSIGN(const auto trained,
                           client.TrainStep(step, v1::OBJECTIVE_POLICY_GRADIENT,
                                            RandomSamples(4, 2, static_cast<uint64_t>(step))));
      EXPECT_GT(trained.policy_version(), version);
      version = trained.policy_version();
      for (const char* name : {"actor/pg_loss", "actor/grad_norm", "critic/vf_loss"}) {
        said += absl::StrCat(name, " ", trained.metrics().at(name), "; ");
      }
    }
    metrics.push_back(said + digest());
    EXPECT_NE(digest(), at_first);
    begin_anew.set_min_policy_version(version + 3);
    ASSERT_OK_AND_ASSIGN(const auto loaded, client.Load(begin_anew));
    EXPECT_EQ(loaded.step(), 0);
    EXPECT_EQ(loaded.policy_version(), version + 4);
    EXPECT_EQ(digest(), at_first);
    version = loaded.policy_version();
  }
  EXPECT_EQ(metrics[1], metrics[0]);

  begin_anew.set_path(config_.run_dir());
  EXPECT_THAT(client.Load(begin_anew).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("initial_state")));
}

TEST_F(TrainerProcessTest, NamesARankThatWasKilledAndEndsEveryProcess) {
  config_.mutable_trainer()->set_ranks(3);
  ASSERT_OK_AND_ASSIGN(auto trainer, TrainerProcesses::Start(folder_, config_));
  TrainerClient client(trainer->address());
  ASSERT_THAT(client.TrainStep(1, v1::OBJECTIVE_SUPERVISED, RandomSamples(2, 2, 1)), IsOk());
  auto context = rpc::MakeContext(absl::Seconds(60));
  auto watch = client.stub().Watch(context.get(), {});

  trainer->rank(2).Kill();

  // Whoever asks now, or watches, is told; within seconds, for the heartbeat finds out by itself.
  v1::WatchResponse state;
  while (watch->Read(&state) && state.state() != v1::TRAINER_STATE_FAILED) {
  }
  EXPECT_EQ(state.state(), v1::TRAINER_STATE_FAILED);
  EXPECT_THAT(state.error(), HasSubstr("trainer rank 2 of 3 was lost"));
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_TRUE(trainer->rank(rank).Wait(absl::Seconds(30))) << "rank " << rank;
    EXPECT_EQ(trainer->rank(rank).ExitDescription(), "exited with 1") << "rank " << rank;
  }
}

TEST_F(TrainerProcessTest, AnswersUnavailableToTheStepThatARankWasKilledIn) {
  config_.mutable_trainer()->set_ranks(3);
  // Many small micro-batches: the step lasts until the rank is gone.
  config_.mutable_trainer()->set_max_tokens_per_micro_batch(1);
  config_.mutable_actor()->set_ppo_epochs(200);
  ASSERT_OK_AND_ASSIGN(auto trainer, TrainerProcesses::Start(folder_, config_));
  TrainerClient client(trainer->address());
  auto context = rpc::MakeContext(absl::Seconds(120));
  auto watch = client.stub().Watch(context.get(), {});
  absl::Status answer;
  std::thread step([&] {
    answer = client.TrainStep(1, v1::OBJECTIVE_POLICY_GRADIENT, RandomSamples(8, 8, 1)).status();
  });
  v1::WatchResponse state;
  while (watch->Read(&state) && state.state() != v1::TRAINER_STATE_TRAINING) {
  }

  trainer->rank(1).Kill();

  step.join();
  EXPECT_THAT(answer,
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("trainer rank 1 of 3 was lost")));
  for (int rank : {0, 2}) {
    EXPECT_TRUE(trainer->rank(rank).Wait(absl::Seconds(30))) << "rank " << rank;
    EXPECT_EQ(trainer->rank(rank).ExitDescription(), "exited with 1") << "rank " << rank;
  }
}

TEST_F(TrainerProcessTest, OfTheOtherRanksEndsWhenTheLeaderIsKilled) {
  config_.mutable_trainer()->set_ranks(3);
  ASSERT_OK_AND_ASSIGN(auto trainer, TrainerProcesses::Start(folder_, config_));

  trainer->rank(0).Kill();

  for (int rank : {1, 2}) {
    EXPECT_TRUE(trainer->rank(rank).Wait(absl::Seconds(30))) << "rank " << rank;
    EXPECT_EQ(trainer->rank(rank).ExitDescription(), "exited with 1") << "rank " << rank;
  }
}

TEST_F(TrainerProcessTest, SavesTheSameFolderOnTwoRanksAsItStartedFrom) {
  config_.mutable_trainer()->set_ranks(2);
  ASSERT_OK_AND_ASSIGN(auto trainer, TrainerProcesses::Start(folder_ + "/a", config_));
  TrainerClient client(trainer->address());
  const auto samples = RandomSamples(3, 2, 4);
  ASSERT_THAT(client.TrainStep(1, v1::OBJECTIVE_SUPERVISED, samples), IsOk());
  const std::string model = config_.run_dir() + "/model";
  ASSERT_THAT(client.Save(model, v1::CHECKPOINT_FORMAT_HUGGING_FACE), IsOk());
  const std::string sharded = config_.run_dir() + "/sharded";
  ASSERT_THAT(client.Save(sharded, v1::CHECKPOINT_FORMAT_SHARDED), IsOk());
  ASSERT_OK_AND_ASSIGN(const std::vector<float> expected, client.LogProbs(samples));
  ASSERT_THAT(client.TrainStep(2, v1::OBJECTIVE_SUPERVISED, samples), IsOk());
  ASSERT_THAT(client.Load(sharded), IsOk());
  ASSERT_OK_AND_ASSIGN(const std::vector<float> reloaded, client.LogProbs(samples));
  EXPECT_EQ(reloaded, expected);
  EXPECT_TRUE(trainer->StopInOrder());

  config_.mutable_model()->set_path(model);
  config_.mutable_model()->set_random_init(false);
  config_.mutable_trainer()->set_ranks(1);
  config_.mutable_trainer()->add_checkpoint_roots(config_.run_dir());
  ASSERT_OK_AND_ASSIGN(auto other, TrainerProcesses::Start(folder_ + "/b", config_));
  TrainerClient other_client(other->address());
  ASSERT_OK_AND_ASSIGN(const std::vector<float> actual, other_client.LogProbs(samples));
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) EXPECT_NEAR(actual[i], expected[i], 1e-6);
  // The shards of two ranks load into one.
  ASSERT_THAT(other_client.TrainStep(1, v1::OBJECTIVE_SUPERVISED, samples), IsOk());
  ASSERT_THAT(other_client.Load(sharded), IsOk());
  ASSERT_OK_AND_ASSIGN(const std::vector<float> resharded, other_client.LogProbs(samples));
  for (size_t i = 0; i < resharded.size(); ++i) EXPECT_NEAR(resharded[i], expected[i], 1e-6);
}

TEST(TrainerCommandLine, AnswersMisuseWithTwo) {
  const std::string binary = std::string(std::getenv("TANDEM_BIN")) + "/tandem-trainer";
  const std::string folder = MakeFolder("misuse");
  const std::vector<std::vector<std::string>> misuses = {
      {}, {"--confg", "x"}, {"--config", folder + "/absent.yaml"}};
  for (const std::vector<std::string>& arguments : misuses) {
    rpc::ChildProcessOptions options;
    options.argv = {binary};
    options.argv.insert(options.argv.end(), arguments.begin(), arguments.end());
    options.log_path = folder + "/log";
    ASSERT_OK_AND_ASSIGN(auto process, rpc::ChildProcess::Start(std::move(options)));
    ASSERT_TRUE(process->Wait(absl::Seconds(30)));
    EXPECT_EQ(process->ExitDescription(), "exited with 2");
  }
}

}  // namespace
}  // namespace tandem::trainer
