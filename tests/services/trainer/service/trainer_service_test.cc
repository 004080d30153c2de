// The service in this process with one rank and a tiny random model.
#include "services/trainer/service/trainer_service.h"

#include <gmock/gmock.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>

#include "absl/strings/match.h"
#include "absl/time/clock.h"
#include "common/io/model_folder.h"
#include "common/rpc/channel.h"
#include "common/rpc/status_conversion.h"
#include "common/weights/tensor_digests.h"
#include "services/trainer/optim/lr_schedule.h"
#include "tandem/common/v1/error.pb.h"
#include "tests/services/trainer/service/one_rank.h"
#include "tests/services/trainer/service/trainer_test_support.h"
#include "tests/support/enum_sweep.h"
#include "tests/support/request_id_sweep.h"
#include "tests/support/status_matchers.h"

namespace tandem::trainer {
namespace {

using ::tandem::testing::IsOk;
using ::tandem::testing::StatusIs;
using ::testing::HasSubstr;

class TrainerServiceTest : public ::testing::Test {
 protected:
  TrainerServiceTest()
      : folder_(MakeFolder(::testing::UnitTest::GetInstance()->current_test_info()->name())),
        config_(TinyConfig(folder_)),
        trainer_(config_),
        client_(trainer_.server().address()),
        samples_(RandomSamples(3, 4, 5)) {}

  double Loss(const v1::TrainStepResponse& response) { return response.metrics().at("train/loss"); }

  const std::string folder_;
  const config::v1::RunConfig config_;
  OneRank trainer_;
  TrainerClient client_;
  const std::vector<common::v1::Sample> samples_;
};

TEST_F(TrainerServiceTest, SaysWhatTheModelIs) {
  ASSERT_OK_AND_ASSIGN(const auto info, client_.GetModelInfo());

  EXPECT_EQ(info.architecture(), "Qwen2ForCausalLM");
  EXPECT_EQ(info.incarnation(), kIncarnation);
  EXPECT_EQ(info.policy_version(), 0);
  EXPECT_EQ(info.step(), 0);
  EXPECT_EQ(info.vocab_size(), kVocabSize);
  EXPECT_EQ(info.max_position_embeddings(), kMaxLength);
  EXPECT_EQ(info.num_ranks(), 1);
  EXPECT_EQ(info.dtype(), "float32");
  EXPECT_EQ(info.manifest().tensors(0).name(), "model.embed_tokens.weight");
}

TEST(TrainerService, SaysWhichTensorsAreFrozen) {
  config::v1::RunConfig config = TinyConfig(MakeFolder("frozen"));
  config.mutable_trainer()->add_frozen_parameters("*norm.weight");
  OneRank trainer(config);
  ASSERT_OK_AND_ASSIGN(const auto info, TrainerClient(trainer.server().address()).GetModelInfo());
  for (const common::v1::TensorEntry& tensor : info.manifest().tensors()) {
    EXPECT_NE(tensor.trainable(), absl::EndsWith(tensor.name(), "norm.weight")) << tensor.name();
  }
}

TEST_F(TrainerServiceTest, LowersTheLossOfWhatItIsShown) {
  ASSERT_OK_AND_ASSIGN(const auto first, client_.TrainStep(1, v1::OBJECTIVE_SUPERVISED, samples_));
  double last = Loss(first);
  EXPECT_NEAR(last, std::log(kVocabSize), 1.0);
  for (int64_t step = 2; step <= 8; ++step) {
    ASSERT_OK_AND_ASSIGN(const auto response,
                         client_.TrainStep(step, v1::OBJECTIVE_SUPERVISED, samples_));
    EXPECT_LT(Loss(response), last);
    EXPECT_EQ(response.policy_version(), step);
    last = Loss(response);
  }
}

TEST_F(TrainerServiceTest, AnswersARepeatWithTheStoredResultAndReadsNoSamples) {
  ASSERT_OK_AND_ASSIGN(const auto first, client_.TrainStep(1, v1::OBJECTIVE_SUPERVISED, samples_));
  v1::TrainStepHeader header;
  header.set_step(1);
  header.set_objective(v1::OBJECTIVE_SUPERVISED);
  header.set_samples_digest(first.samples_digest());

  ASSERT_OK_AND_ASSIGN(const auto repeat, client_.TrainStep(header, {}));

  EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(repeat, first))
      << repeat.ShortDebugString();
  ASSERT_OK_AND_ASSIGN(const auto info, client_.GetModelInfo());
  EXPECT_EQ(info.policy_version(), 1);
}

TEST_F(TrainerServiceTest, RefusesAStepOutOfOrderAndAnotherIncarnation) {
  const auto skipped = client_.TrainStep(2, v1::OBJECTIVE_SUPERVISED, samples_);
  EXPECT_THAT(skipped,
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("expected step 1")));
  const auto info = rpc::GetDetail<common::v1::ErrorInfo>(skipped.status());
  ASSERT_TRUE(info.has_value());
  EXPECT_EQ(info->reason(), "STEP_OUT_OF_ORDER");
  EXPECT_THAT(info->metadata().at("expected"), "1");

  v1::TrainStepHeader header;
  header.set_step(1);
  header.set_objective(v1::OBJECTIVE_SUPERVISED);
  header.set_incarnation(kIncarnation - 1);
  EXPECT_THAT(client_.TrainStep(header, samples_),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("incarnation 76")));
}

TEST_F(TrainerServiceTest, DigestsOfTheWeightsAreThoseOfTheModelItWrites) {
  ASSERT_THAT(client_.TrainStep(1, v1::OBJECTIVE_SUPERVISED, samples_), IsOk());
  ASSERT_THAT(client_.Save(folder_ + "/run/model", v1::CHECKPOINT_FORMAT_HUGGING_FACE), IsOk());
  v1::GetWeightDigestsRequest request;
  request.set_incarnation(kIncarnation);
  v1::GetWeightDigestsResponse response;
  auto context = rpc::MakeContext(absl::Seconds(30));

  ASSERT_TRUE(client_.stub().GetWeightDigests(context.get(), request, &response).ok());

  EXPECT_EQ(response.policy_version(), 1);
  EXPECT_EQ(response.incarnation(), kIncarnation);
  ASSERT_OK_AND_ASSIGN(const auto info, client_.GetModelInfo());
  EXPECT_EQ(response.manifest_digest(), info.manifest().digest());
  ASSERT_EQ(response.digests_size(), info.manifest().tensors_size());
  ASSERT_OK_AND_ASSIGN(const auto folder, io::ModelFolder::Open(folder_ + "/run/model"));
  for (int i = 0; i < response.digests_size(); ++i) {
    const common::v1::TensorEntry& tensor = info.manifest().tensors(i);
    ASSERT_OK_AND_ASSIGN(const io::TensorView view, folder.Find(tensor.name()));
    EXPECT_EQ(response.digests(i).name(), tensor.name());
    EXPECT_EQ(response.digests(i).digest(), weights::SumOfHeld(tensor, view.bytes).Hex());
  }
  EXPECT_EQ(response.model_digest(),
            weights::ModelDigest({response.digests().begin(), response.digests().end()}));
}

TEST_F(TrainerServiceTest, DigestsForAnotherIncarnationAreRefused) {
  v1::GetWeightDigestsRequest request;
  request.set_incarnation(kIncarnation - 1);
  v1::GetWeightDigestsResponse response;
  auto context = rpc::MakeContext(absl::Seconds(30));

  const absl::Status status =
      rpc::FromGrpcStatus(client_.stub().GetWeightDigests(context.get(), request, &response));

  EXPECT_THAT(status, StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("incarnation 76")));
}

TEST_F(TrainerServiceTest, RefusesABadSampleAndChangesNothing) {
  ASSERT_OK_AND_ASSIGN(const std::vector<float> before, client_.LogProbs(samples_));
  std::vector<common::v1::Sample> bad = samples_;
  bad[3].mutable_segments(1)->set_token_ids(0, 5000);

  EXPECT_THAT(client_.TrainStep(1, v1::OBJECTIVE_SUPERVISED, bad),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("samples[3].segments[1].token_ids[0]: 5000 is outside")));

  ASSERT_OK_AND_ASSIGN(const std::vector<float> after, client_.LogProbs(samples_));
  EXPECT_EQ(after, before);
  EXPECT_THAT(client_.TrainStep(1, v1::OBJECTIVE_SUPERVISED, samples_), IsOk());
}

TEST_F(TrainerServiceTest, ALongRequestIdIsRefusedInEveryRequest) {
  EXPECT_EQ(testing::ExpectLongRequestIdsAreRefused(rpc::MakeChannel(trainer_.server().address()),
                                                    "tandem.trainer.v1.TrainerService"),
            4);
}

TEST_F(TrainerServiceTest, AnEnumThatHasNoNameIsRefusedInEveryRequest) {
  EXPECT_GE(testing::ExpectUnknownEnumsAreRefused(rpc::MakeChannel(trainer_.server().address()),
                                                  "tandem.trainer.v1.TrainerService"),
            4);
}

TEST_F(TrainerServiceTest, ARewardThatFloat32CannotSquareIsRefusedAndNamed) {
  std::vector<common::v1::Sample> bad = samples_;
  bad[2].set_reward(1e308);
  EXPECT_THAT(client_.TrainStep(1, v1::OBJECTIVE_POLICY_GRADIENT, bad),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("samples[2].reward: expected a finite number from -1e+09")));
}

TEST_F(TrainerServiceTest, RefusesAStreamThatEndsEarlyOrHoldsNothingToTrainOn) {
  v1::TrainStepHeader header;
  header.set_step(1);
  header.set_objective(v1::OBJECTIVE_SUPERVISED);
  EXPECT_THAT(client_.TrainStep(header, {}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("at least one")));
  header.set_num_samples(100);
  EXPECT_THAT(client_.TrainStep(header, samples_),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("expected 100 samples")));
  header.set_num_samples(0);
  std::vector<common::v1::Sample> prompts = samples_;
  for (common::v1::Sample& sample : prompts) sample.mutable_segments()->RemoveLast();
  EXPECT_THAT(client_.TrainStep(header, prompts),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("a token to train on")));
}

TEST_F(TrainerServiceTest, RaisesTheProbabilityOfWhatWasRewardedAndReportsTheRolloutsMismatch) {
  std::vector<common::v1::Sample> judged = samples_;
  for (common::v1::Sample& sample : judged) {
    sample.set_reward(sample.index() == 0 ? 1 : 0);
    common::v1::Segment& sampled = *sample.mutable_segments(1);
    ASSERT_OK_AND_ASSIGN(const std::vector<float> logprobs, client_.LogProbs({sample}));
    const int64_t prompt = sample.segments(0).token_ids_size();
    for (int t = 0; t < sampled.token_ids_size(); ++t)
      sampled.add_logprobs(logprobs[prompt - 1 + t]);
  }
  ASSERT_OK_AND_ASSIGN(const std::vector<float> before, client_.LogProbs({judged[0]}));

  ASSERT_OK_AND_ASSIGN(const auto response,
                       client_.TrainStep(1, v1::OBJECTIVE_POLICY_GRADIENT, judged));

  const auto& metrics = response.metrics();
  EXPECT_NEAR(metrics.at("training/rollout_probs_diff_max"), 0, 1e-6);
  EXPECT_NEAR(metrics.at("actor/ppo_kl"), 0, 1e-9);
  EXPECT_EQ(metrics.at("actor/pg_clipfrac"), 0);
  EXPECT_NEAR(metrics.at("critic/rewards/mean"), 0.25, 1e-9);
  EXPECT_GT(metrics.at("actor/grad_norm"), 0);
  EXPECT_GT(metrics.at("actor/entropy"), 0);
  ASSERT_OK_AND_ASSIGN(const std::vector<float> after, client_.LogProbs({judged[0]}));
  const auto sampled_sum = [&](const std::vector<float>& logprobs) {
    double sum = 0;
    for (size_t i = judged[0].segments(0).token_ids_size() - 1; i < logprobs.size(); ++i) {
      sum += logprobs[i];
    }
    return sum;
  };
  EXPECT_GT(sampled_sum(after), sampled_sum(before));
}

TEST_F(TrainerServiceTest, ComesBackToAShardedCheckpointAndItsStep) {
  ASSERT_THAT(client_.TrainStep(1, v1::OBJECTIVE_SUPERVISED, samples_), IsOk());
  const std::string path = config_.run_dir() + "/checkpoints/1";
  ASSERT_THAT(client_.Save(path, v1::CHECKPOINT_FORMAT_SHARDED), IsOk());
  ASSERT_OK_AND_ASSIGN(const auto second, client_.TrainStep(2, v1::OBJECTIVE_SUPERVISED, samples_));

  ASSERT_OK_AND_ASSIGN(const auto loaded, client_.Load(path, /*min_policy_version=*/9));

  EXPECT_EQ(loaded.step(), 1);
  EXPECT_EQ(loaded.driver_state(), "state after 1");
  EXPECT_EQ(loaded.policy_version(), 10);
  // The moments came back too: the same step has the same result.
  ASSERT_OK_AND_ASSIGN(const auto again, client_.TrainStep(2, v1::OBJECTIVE_SUPERVISED, samples_));
  EXPECT_EQ(Loss(again), Loss(second));
  EXPECT_EQ(again.metrics().at("actor/grad_norm"), second.metrics().at("actor/grad_norm"));
  ASSERT_OK_AND_ASSIGN(const auto third, client_.TrainStep(3, v1::OBJECTIVE_SUPERVISED, samples_));
  EXPECT_LT(Loss(third), Loss(second));
  EXPECT_EQ(third.policy_version(), 12);
}

TEST_F(TrainerServiceTest, RefusesADamagedCheckpointAndChangesNothing) {
  ASSERT_THAT(client_.TrainStep(1, v1::OBJECTIVE_SUPERVISED, samples_), IsOk());
  const std::string path = config_.run_dir() + "/damaged";
  ASSERT_THAT(client_.Save(path, v1::CHECKPOINT_FORMAT_SHARDED), IsOk());
  ASSERT_OK_AND_ASSIGN(const std::vector<float> before, client_.LogProbs(samples_));
  {
    std::fstream file(path + "/rank-0-of-1.bin", std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-5, std::ios::end);
    file.put('\x5a');
  }

  EXPECT_THAT(client_.Load(path),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("rank-0-of-1.bin is damaged")));
  EXPECT_THAT(client_.Load(config_.run_dir() + "/absent"),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("manifest.json")));

  ASSERT_OK_AND_ASSIGN(const std::vector<float> after, client_.LogProbs(samples_));
  EXPECT_EQ(after, before);
}

TEST_F(TrainerServiceTest, ReadsAndWritesNowhereButUnderTheRoots) {
  const std::string outside = config_.run_dir() + "/../elsewhere";
  EXPECT_THAT(client_.Save(outside, v1::CHECKPOINT_FORMAT_SHARDED),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("the run's")));
  EXPECT_THAT(client_.Save(outside, v1::CHECKPOINT_FORMAT_HUGGING_FACE),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("the run's")));
  EXPECT_THAT(client_.Load(outside),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("trainer.checkpoint_roots")));
  EXPECT_FALSE(std::filesystem::exists(outside));
}

TEST_F(TrainerServiceTest, ReplacesNoFolderThatHoldsOtherFiles) {
  const std::string rollouts = config_.run_dir() + "/rollouts";
  const std::string step = config_.run_dir() + "/checkpoints/step-1";
  const std::string model = config_.run_dir() + "/model";
  std::filesystem::create_directories(rollouts);
  std::ofstream(rollouts + "/1.jsonl") << "{}";
  ASSERT_THAT(client_.Save(step, v1::CHECKPOINT_FORMAT_SHARDED), IsOk());
  ASSERT_THAT(client_.Save(model, v1::CHECKPOINT_FORMAT_HUGGING_FACE), IsOk());

  for (const std::string& path : {rollouts, config_.run_dir() + "/checkpoints", model}) {
    EXPECT_THAT(client_.Save(path, v1::CHECKPOINT_FORMAT_SHARDED),
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         HasSubstr(std::filesystem::path(path).lexically_normal().string() +
                                   ": expected")));
  }
  for (const std::string& path : {rollouts, config_.run_dir() + "/checkpoints", step}) {
    EXPECT_THAT(client_.Save(path, v1::CHECKPOINT_FORMAT_HUGGING_FACE),
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         HasSubstr(std::filesystem::path(path).lexically_normal().string() +
                                   ": expected")));
  }

  EXPECT_TRUE(std::filesystem::exists(rollouts + "/1.jsonl"));
  EXPECT_TRUE(std::filesystem::exists(step + "/manifest.json"));
  // One of its kind, or an empty folder, is replaced.
  EXPECT_THAT(client_.Save(step, v1::CHECKPOINT_FORMAT_SHARDED), IsOk());
  EXPECT_THAT(client_.Save(model, v1::CHECKPOINT_FORMAT_HUGGING_FACE), IsOk());
  std::filesystem::create_directory(config_.run_dir() + "/empty");
  EXPECT_THAT(client_.Save(config_.run_dir() + "/empty", v1::CHECKPOINT_FORMAT_SHARDED), IsOk());
}

TEST_F(TrainerServiceTest, SchedulesTheLearningRateOverTheStepsThatTheDriverNames) {
  config::v1::RunConfig config = config_;
  config.mutable_actor()->mutable_optim()->set_schedule(config::v1::LR_SCHEDULE_LINEAR);
  config.mutable_trainer()->set_total_steps(100);
  OneRank trainer(config);
  TrainerClient client(trainer.server().address());
  v1::TrainStepHeader header;
  header.set_objective(v1::OBJECTIVE_SUPERVISED);
  header.set_num_samples(static_cast<int64_t>(samples_.size()));
  std::map<int64_t, double> rates;  // by the header's total_steps
  for (const int64_t total_steps : {0, 100, 4}) {
    header.set_step(header.step() + 1);
    header.set_total_steps(total_steps);
    ASSERT_OK_AND_ASSIGN(const auto response, client.TrainStep(header, samples_));
    rates[total_steps] = response.metrics().at("actor/lr");
  }
  const config::v1::OptimConfig& optim = config.actor().optim();
  EXPECT_EQ(rates[0], LearningRate(optim, 0, 100));
  EXPECT_EQ(rates[100], LearningRate(optim, 1, 100));
  EXPECT_EQ(rates[4], LearningRate(optim, 2, 4));

  header.set_step(4);
  header.set_total_steps(-1);
  EXPECT_THAT(client.TrainStep(header, samples_).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("header.total_steps")));
}

TEST_F(TrainerServiceTest, WritesACheckpointWhileTrainingGoesOn) {
  ASSERT_THAT(client_.TrainStep(1, v1::OBJECTIVE_SUPERVISED, samples_), IsOk());
  ASSERT_OK_AND_ASSIGN(const std::vector<float> saved, client_.LogProbs(samples_));
  v1::SaveCheckpointRequest request;
  request.set_path(config_.run_dir() + "/checkpoints/step-1");
  request.set_asynchronous(true);
  request.set_driver_state("state at the save");

  ASSERT_THAT(client_.Save(request), IsOk());
  ASSERT_THAT(client_.TrainStep(2, v1::OBJECTIVE_SUPERVISED, samples_), IsOk());
  // The next save waits for it, and tells how it ended.
  request.set_path(config_.run_dir() + "/checkpoints/step-2");
  ASSERT_OK_AND_ASSIGN(const auto second, client_.Save(request));

  ASSERT_OK_AND_ASSIGN(const auto loaded, client_.Load(config_.run_dir() + "/checkpoints/step-1"));
  EXPECT_EQ(loaded.step(), 1);
  EXPECT_EQ(loaded.driver_state(), "state at the save");
  ASSERT_OK_AND_ASSIGN(const std::vector<float> restored, client_.LogProbs(samples_));
  EXPECT_EQ(restored, saved);
}

TEST_F(TrainerServiceTest, ACheckpointInFlightIsNotWrittenTwice) {
  ASSERT_THAT(client_.TrainStep(1, v1::OBJECTIVE_SUPERVISED, samples_), IsOk());
  v1::SaveCheckpointRequest request;
  request.set_path(config_.run_dir() + "/checkpoints/step-1");
  request.set_asynchronous(true);
  request.set_driver_state("state");
  ASSERT_THAT(client_.Save(request), IsOk());
  const std::string manifest = request.path() + "/manifest.json";
  const absl::Time deadline = absl::Now() + absl::Seconds(60);
  while (!std::filesystem::exists(manifest) && absl::Now() < deadline) {
    absl::SleepFor(absl::Milliseconds(5));
  }
  ASSERT_TRUE(std::filesystem::exists(manifest));
  const auto written = std::filesystem::last_write_time(manifest);

  request.set_asynchronous(false);
  ASSERT_OK_AND_ASSIGN(const auto again, client_.Save(request));
  EXPECT_GT(again.size_bytes(), 0);
  EXPECT_EQ(again.earlier().path(),
            std::filesystem::path(request.path()).lexically_normal().string());
  EXPECT_EQ(std::filesystem::last_write_time(manifest), written);

  // Another state of the driver is another checkpoint.
  request.set_asynchronous(true);
  ASSERT_THAT(client_.Save(request), IsOk());
  request.set_asynchronous(false);
  request.set_driver_state("later state");
  ASSERT_THAT(client_.Save(request), IsOk());
  ASSERT_OK_AND_ASSIGN(const auto loaded, client_.Load(request.path()));
  EXPECT_EQ(loaded.driver_state(), "later state");
}

TEST_F(TrainerServiceTest, TellsOfACheckpointThatWasWrittenMeanwhile) {
  ASSERT_THAT(client_.TrainStep(1, v1::OBJECTIVE_SUPERVISED, samples_), IsOk());
  v1::SaveCheckpointRequest request;
  request.set_path(config_.run_dir() + "/checkpoints/step-1");
  request.set_asynchronous(true);
  ASSERT_THAT(client_.Save(request), IsOk());

  // The answer of whichever step first finds it complete says so, once.
  int64_t step = 1;
  int told = 0;
  while (told == 0 && step < 2000) {
    ASSERT_OK_AND_ASSIGN(const auto response,
                         client_.TrainStep(++step, v1::OBJECTIVE_SUPERVISED, samples_));
    if (!response.has_checkpoint()) continue;
    ++told;
    EXPECT_EQ(response.checkpoint().step(), 1);
    EXPECT_EQ(response.checkpoint().error(), "");
    EXPECT_GT(response.checkpoint().size_bytes(), 0);
  }
  EXPECT_EQ(told, 1);
}

TEST_F(TrainerServiceTest, WritesAHuggingFaceFolderThatAnotherTrainerStartsFrom) {
  ASSERT_THAT(client_.TrainStep(1, v1::OBJECTIVE_SUPERVISED, samples_), IsOk());
  const std::string path = config_.run_dir() + "/model";
  ASSERT_THAT(client_.Save(path, v1::CHECKPOINT_FORMAT_HUGGING_FACE), IsOk());
  ASSERT_OK_AND_ASSIGN(const std::vector<float> expected, client_.LogProbs(samples_));

  config::v1::RunConfig config = config_;
  config.mutable_model()->set_path(path);
  config.mutable_model()->set_random_init(false);
  OneRank other(config);
  TrainerClient other_client(other.server().address());
  ASSERT_OK_AND_ASSIGN(const std::vector<float> actual, other_client.LogProbs(samples_));

  EXPECT_EQ(actual, expected);
}

TEST_F(TrainerServiceTest, RefusesToWriteOutsideTheRunsFolder) {
  EXPECT_THAT(client_.Save(config_.run_dir() + "/../elsewhere", v1::CHECKPOINT_FORMAT_SHARDED),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("expected a folder under")));
  EXPECT_THAT(client_.Save(config_.run_dir(), v1::CHECKPOINT_FORMAT_SHARDED),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("expected a folder under")));
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/elsewhere"));
}

TEST_F(TrainerServiceTest, BeginsAWatchWithThePresentState) {
  ASSERT_THAT(client_.TrainStep(1, v1::OBJECTIVE_SUPERVISED, samples_), IsOk());
  auto context = rpc::MakeContext(absl::Seconds(30));
  auto reader = client_.stub().Watch(context.get(), {});
  v1::WatchResponse response;

  ASSERT_TRUE(reader->Read(&response));
  EXPECT_EQ(response.step(), 1);
  EXPECT_EQ(response.policy_version(), 1);

  ASSERT_THAT(trainer_.server().Stop(absl::Seconds(10)), IsOk());
  while (reader->Read(&response)) {
  }
  EXPECT_EQ(response.state(), v1::TRAINER_STATE_DRAINING);
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
}

}  // namespace
}  // namespace tandem::trainer
