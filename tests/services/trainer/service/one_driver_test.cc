// One driver at a time: what the trainer accepts from whom, what counts as a repeat, and which
// versions and samples it takes.
#include <gmock/gmock.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/checkpoint/manifest.h"
#include "common/rpc/channel.h"
#include "common/rpc/message_digest.h"
#include "common/rpc/policy_version.h"
#include "common/rpc/status_conversion.h"
#include "common/status/status_macros.h"
#include "tests/services/trainer/service/one_rank.h"
#include "tests/services/trainer/service/trainer_test_support.h"
#include "tests/support/error_reason.h"
#include "tests/support/status_matchers.h"

namespace tandem::trainer {
namespace {

using ::google::protobuf::util::MessageDifferencer;
using ::tandem::testing::IsOk;
using ::tandem::testing::ReasonOf;
using ::tandem::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr auto kRefused = absl::StatusCode::kFailedPrecondition;

// A process that drives a trainer, or tries to.
class Driver {
 public:
  Driver(const std::string& address, const std::string& run, const std::string& id)
      : client_(address), run_(run), id_(id) {}

  absl::Status Acquire() {
    v1::AcquireLeaseRequest request;
    request.set_driver_id(id_);
    request.set_run_id(run_);
    request.set_host("host-of-" + id_);
    request.set_run_dir("/runs/" + run_);
    auto context = rpc::MakeContext(absl::Seconds(30));
    v1::AcquireLeaseResponse response;
    RETURN_IF_ERROR(
        rpc::FromGrpcStatus(client_.stub().AcquireLease(context.get(), request, &response)));
    lease_ = response.lease();
    return absl::OkStatus();
  }

  v1::TrainStepHeader Header(int64_t step) const {
    v1::TrainStepHeader header;
    header.set_step(step);
    header.set_objective(v1::OBJECTIVE_SUPERVISED);
    *header.mutable_lease() = lease_;
    return header;
  }

  absl::StatusOr<v1::TrainStepResponse> Train(int64_t step,
                                              const std::vector<common::v1::Sample>& samples) {
    return client_.TrainStep(Header(step), samples);
  }

  absl::Status Publish() {
    v1::PublishWeightsRequest request;
    request.set_policy_version(-1);
    *request.mutable_lease() = lease_;
    v1::RolloutReplica& replica = *request.add_replicas();
    replica.set_replica_id("r");
    replica.add_rank_addresses("127.0.0.1:1");
    rpc::SetDigest(request);
    auto context = rpc::MakeContext(absl::Seconds(30));
    v1::PublishWeightsResponse response;
    return rpc::FromGrpcStatus(client_.stub().PublishWeights(context.get(), request, &response));
  }

  absl::StatusOr<v1::SaveCheckpointResponse> Save(const std::string& path) {
    v1::SaveCheckpointRequest request;
    request.set_path(path);
    *request.mutable_lease() = lease_;
    return client_.Save(request);
  }

  absl::StatusOr<v1::LoadCheckpointResponse> Load(const std::string& path,
                                                  const std::string& request_id = "") {
    v1::LoadCheckpointRequest request;
    request.set_request_id(request_id);
    request.set_path(path);
    *request.mutable_lease() = lease_;
    return client_.Load(request);
  }

  TrainerClient& client() { return client_; }

 private:
  TrainerClient client_;
  const std::string run_;
  const std::string id_;
  v1::Lease lease_;
};

// The samples as if `incarnation` had sampled them with version 3.
std::vector<common::v1::Sample> SampledBy(int64_t incarnation,
                                          std::vector<common::v1::Sample> samples) {
  for (common::v1::Sample& sample : samples) {
    common::v1::Segment& sampled = *sample.mutable_segments(1);
    common::v1::VersionSpan& span = *sampled.add_version_spans();
    span.set_policy_version(3);
    span.set_end(sampled.token_ids_size());
    span.set_incarnation(incarnation);
  }
  return samples;
}

class OneDriverTest : public ::testing::Test {
 protected:
  OneDriverTest()
      : folder_(MakeFolder(::testing::UnitTest::GetInstance()->current_test_info()->name())),
        config_(TinyConfig(folder_)),
        samples_(RandomSamples(2, 2, 5)),
        others_(RandomSamples(2, 2, 6)) {
    Start(kIncarnation);
  }

  // A trainer whose life begins now, after the end of the one before.
  void Start(int64_t incarnation) {
    trainer_.reset();
    trainer_.emplace(config_, incarnation, [this] { return absl::Nanoseconds(now_ns_.load()); });
  }
  Driver MakeDriver(const std::string& run, const std::string& id) {
    return Driver(trainer_->server().address(), run, id);
  }
  void Advance(absl::Duration duration) { now_ns_ += absl::ToInt64Nanoseconds(duration); }
  int64_t Version() {
    TrainerClient client(trainer_->server().address());
    const auto info = client.GetModelInfo();
    EXPECT_THAT(info, IsOk());
    return info.ok() ? info->policy_version() : -1;
  }

  const std::string folder_;
  const config::v1::RunConfig config_;
  const std::vector<common::v1::Sample> samples_;
  const std::vector<common::v1::Sample> others_;
  std::atomic<int64_t> now_ns_{absl::ToInt64Nanoseconds(absl::Hours(1))};
  std::optional<OneRank> trainer_;
};

TEST_F(OneDriverTest, ASecondDriverIsRefusedEverythingAndToldWhoDrives) {
  Driver first = MakeDriver("a", "one");
  Driver second = MakeDriver("b", "two");
  ASSERT_OK(first.Acquire());
  ASSERT_THAT(first.Train(1, samples_), IsOk());

  EXPECT_THAT(second.Acquire(),
              StatusIs(kRefused,
                       AllOf(HasSubstr("run a"), HasSubstr("host-of-one"), HasSubstr("/runs/a"))));
  // Whatever it calls, with the step that it believes to be next.
  const std::string path = config_.run_dir() + "/checkpoints/1";
  for (const absl::Status& status :
       {second.Train(1, others_).status(), second.Train(2, others_).status(), second.Publish(),
        second.Save(path).status(), second.Load(path).status()}) {
    EXPECT_THAT(status, StatusIs(kRefused, HasSubstr("run a")));
    EXPECT_EQ(ReasonOf(status), "LEASE_HELD");
  }
  EXPECT_EQ(Version(), 1);
  ASSERT_OK_AND_ASSIGN(const auto info, first.client().GetModelInfo());
  EXPECT_EQ(info.lease_holder().run_id(), "a");
  EXPECT_THAT(first.Train(2, samples_), IsOk());
}

TEST_F(OneDriverTest, ADriverWhoseLeaseHasExpiredIsFencedOffOnceItIsBack) {
  Driver stopped = MakeDriver("a", "one");
  ASSERT_OK(stopped.Acquire());
  ASSERT_THAT(stopped.Train(1, samples_), IsOk());
  Advance(absl::Seconds(31));
  Driver next = MakeDriver("a", "two");
  ASSERT_OK(next.Acquire());
  ASSERT_THAT(next.Train(2, samples_), IsOk());

  const std::string path = config_.run_dir() + "/checkpoints/2";
  for (const absl::Status& status :
       {stopped.Train(2, samples_).status(), stopped.Train(3, samples_).status(), stopped.Publish(),
        stopped.Save(path).status(), stopped.Load(path).status()}) {
    EXPECT_THAT(status, StatusIs(kRefused, HasSubstr("has ended")));
    EXPECT_EQ(ReasonOf(status), "LEASE_LOST");
  }
  EXPECT_EQ(Version(), 2);
}

TEST_F(OneDriverTest, ALeaseOfAnEarlierLifeOfTheTrainerIsOver) {
  Driver driver = MakeDriver("a", "one");
  ASSERT_OK(driver.Acquire());
  const v1::TrainStepHeader header = driver.Header(1);
  Start(kIncarnation + 5);
  TrainerClient client(trainer_->server().address());
  EXPECT_EQ(ReasonOf(client.TrainStep(header, samples_).status()), "LEASE_LOST");
}

TEST_F(OneDriverTest, ARepeatIsTheSameRunAndSamplesWhateverProcessSendsIt) {
  Driver first = MakeDriver("a", "one");
  ASSERT_OK(first.Acquire());
  ASSERT_OK_AND_ASSIGN(const auto trained, first.Train(1, samples_));
  Advance(absl::Minutes(1));
  Driver second = MakeDriver("a", "two");
  ASSERT_OK(second.Acquire());

  ASSERT_OK_AND_ASSIGN(const auto repeat, second.Train(1, samples_));

  EXPECT_TRUE(MessageDifferencer::Equals(repeat, trained)) << repeat.ShortDebugString();
  EXPECT_EQ(repeat.run_id(), "a");
  EXPECT_EQ(Version(), 1);
}

TEST_F(OneDriverTest, AKnownStepWithOtherSamplesIsRefused) {
  Driver driver = MakeDriver("a", "one");
  ASSERT_OK(driver.Acquire());
  ASSERT_THAT(driver.Train(1, samples_), IsOk());

  const absl::Status differs = driver.Train(1, others_).status();
  v1::TrainStepHeader header = driver.Header(1);
  header.set_samples_digest("00000000000000000000000000000000");
  const absl::Status stated = driver.client().TrainStep(header, {}).status();

  for (const absl::Status& status : {differs, stated}) {
    EXPECT_THAT(status, StatusIs(kRefused, HasSubstr("step 1 was taken with samples of digest")));
    EXPECT_EQ(ReasonOf(status), "STEP_DIFFERS");
  }
  EXPECT_EQ(Version(), 1);
}

TEST_F(OneDriverTest, AKnownStepOfAnotherRunIsRefused) {
  Driver first = MakeDriver("a", "one");
  ASSERT_OK(first.Acquire());
  ASSERT_THAT(first.Train(1, samples_), IsOk());
  Advance(absl::Minutes(1));
  Driver second = MakeDriver("b", "two");
  ASSERT_OK(second.Acquire());

  const absl::Status differs = second.Train(1, samples_).status();

  EXPECT_THAT(differs, StatusIs(kRefused, AllOf(HasSubstr("run a"), HasSubstr("run b"))));
  EXPECT_EQ(ReasonOf(differs), "STEP_DIFFERS");
}

TEST_F(OneDriverTest, ARepeatIsKnownAfterARestartFromACheckpoint) {
  const std::string path = config_.run_dir() + "/checkpoints/1";
  {
    Driver driver = MakeDriver("a", "one");
    ASSERT_OK(driver.Acquire());
    ASSERT_THAT(driver.Train(1, samples_), IsOk());
    ASSERT_THAT(driver.Save(path), IsOk());
  }
  Start(kIncarnation + 5);
  Driver driver = MakeDriver("a", "two");
  ASSERT_OK(driver.Acquire());
  ASSERT_THAT(driver.Load(path), IsOk());

  EXPECT_THAT(driver.Train(1, samples_), IsOk());
  EXPECT_EQ(ReasonOf(driver.Train(1, others_).status()), "STEP_DIFFERS");
  EXPECT_EQ(Version(), 2);  // the load's
  EXPECT_THAT(driver.Train(2, others_), IsOk());
}

TEST_F(OneDriverTest, SamplesThatAreNotThoseOfTheStatedDigestAreNotTrainedOn) {
  Driver driver = MakeDriver("a", "one");
  ASSERT_OK(driver.Acquire());
  v1::TrainStepHeader header = driver.Header(1);
  header.set_samples_digest("00000000000000000000000000000000");
  EXPECT_THAT(driver.client().TrainStep(header, samples_),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("arrived damaged")));
  EXPECT_EQ(Version(), 0);
}

TEST_F(OneDriverTest, ARequestIdWithOtherContentsIsRefused) {
  Driver driver = MakeDriver("a", "one");
  ASSERT_OK(driver.Acquire());
  v1::TrainStepHeader header = driver.Header(1);
  header.set_request_id("id");
  ASSERT_THAT(driver.client().TrainStep(header, samples_), IsOk());
  header.set_step(2);
  const absl::Status reused = driver.client().TrainStep(header, samples_).status();
  EXPECT_EQ(ReasonOf(reused), "REQUEST_ID_REUSED");
  EXPECT_THAT(driver.Load(config_.run_dir() + "/none", "id"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("request_id")));
  EXPECT_EQ(Version(), 1);
}

TEST_F(OneDriverTest, ALoadIsAppliedOnceForItsRequestId) {
  const std::string path = config_.run_dir() + "/checkpoints/1";
  Driver driver = MakeDriver("a", "one");
  ASSERT_OK(driver.Acquire());
  ASSERT_THAT(driver.Train(1, samples_), IsOk());
  ASSERT_THAT(driver.Save(path), IsOk());
  ASSERT_OK_AND_ASSIGN(const auto loaded, driver.Load(path, "load"));
  ASSERT_OK_AND_ASSIGN(const auto repeated, driver.Load(path, "load"));
  EXPECT_EQ(loaded.policy_version(), 2);
  EXPECT_EQ(repeated.policy_version(), 2);
  EXPECT_EQ(Version(), 2);
}

TEST_F(OneDriverTest, VersionsOutOfRangeAreRefusedAndChangeNothing) {
  const std::string path = config_.run_dir() + "/checkpoints/1";
  Driver driver = MakeDriver("a", "one");
  ASSERT_THAT(driver.Train(1, samples_), IsOk());
  ASSERT_THAT(driver.Save(path), IsOk());
  for (const bool initial : {false, true}) {
    for (const int64_t version :
         {std::numeric_limits<int64_t>::max(), rpc::kMaxPolicyVersion + 1, rpc::kMaxPolicyVersion,
          int64_t{-2}, std::numeric_limits<int64_t>::min()}) {
      v1::LoadCheckpointRequest request;
      if (!initial) request.set_path(path);
      request.set_initial_state(initial);
      request.set_min_policy_version(version);
      EXPECT_THAT(driver.client().Load(request),
                  StatusIs(version == rpc::kMaxPolicyVersion ? absl::StatusCode::kOutOfRange
                                                             : absl::StatusCode::kInvalidArgument,
                           HasSubstr("9007199254740991")))
          << version;
    }
  }
  EXPECT_EQ(Version(), 1);
  std::vector<common::v1::Sample> samples = SampledBy(0, samples_);
  samples[1].mutable_segments(1)->mutable_version_spans(0)->set_policy_version(-1);
  EXPECT_THAT(driver.Train(2, samples),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("samples[1].segments[1].version_spans[0].policy_version")));
  // The last version there is: nothing is trained that could not be published.
  v1::LoadCheckpointRequest request;
  request.set_path(path);
  request.set_min_policy_version(rpc::kMaxPolicyVersion - 1);
  ASSERT_OK_AND_ASSIGN(const auto loaded, driver.client().Load(request));
  EXPECT_EQ(loaded.policy_version(), rpc::kMaxPolicyVersion);
  EXPECT_THAT(driver.Train(2, samples_),
              StatusIs(absl::StatusCode::kOutOfRange, HasSubstr("no policy version is left")));
}

TEST_F(OneDriverTest, ACheckpointOfAVersionOutOfRangeIsNotLoaded) {
  const std::string path = config_.run_dir() + "/checkpoints/1";
  Driver driver = MakeDriver("a", "one");
  ASSERT_THAT(driver.Train(1, samples_), IsOk());
  ASSERT_THAT(driver.Save(path), IsOk());
  ASSERT_OK_AND_ASSIGN(checkpoint::Manifest manifest, checkpoint::ReadManifest(path));
  manifest.policy_version = std::numeric_limits<int64_t>::max();
  ASSERT_OK(checkpoint::WriteManifest(path, manifest));

  EXPECT_THAT(driver.Load(path),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("checkpoints/1/manifest.json"),
                             HasSubstr("policy_version: expected 0 to 9007199254740991, found "
                                       "9223372036854775807"))));
  EXPECT_EQ(Version(), 1);
}

TEST_F(OneDriverTest, SamplesOfAnotherTrainerAreNeverTrainedOn) {
  Driver driver = MakeDriver("a", "one");
  ASSERT_THAT(driver.Train(1, SampledBy(kIncarnation, samples_)), IsOk());

  const absl::Status foreign = driver.Train(2, SampledBy(kIncarnation + 1, samples_)).status();

  EXPECT_THAT(
      foreign,
      StatusIs(kRefused, AllOf(HasSubstr("samples[0].segments[1].version_spans[0]"),
                               HasSubstr("incarnation 78"), HasSubstr("this is incarnation 77"))));
  EXPECT_EQ(ReasonOf(foreign), "FOREIGN_SAMPLES");
  EXPECT_EQ(Version(), 1);
}

TEST_F(OneDriverTest, SamplesOfTheTrainersWhoseCheckpointsItContinuesStayTrainable) {
  std::string path;
  // Three lives, each from the checkpoint of the one before.
  for (int64_t life = 0; life < 3; ++life) {
    if (life > 0) Start(kIncarnation + life);
    Driver driver = MakeDriver("a", absl::StrCat("driver ", life));
    ASSERT_OK(driver.Acquire());
    if (life > 0) {
      ASSERT_OK_AND_ASSIGN(const auto loaded, driver.Load(path));
      EXPECT_EQ(loaded.incarnations(0), kIncarnation + life);
      EXPECT_EQ(loaded.incarnations_size(), life + 1);
    }
    // The first life's were finished, and are trained on at last.
    ASSERT_THAT(driver.Train(life + 1, SampledBy(kIncarnation, samples_)), IsOk());
    path = absl::StrCat(config_.run_dir(), "/checkpoints/", life);
    ASSERT_THAT(driver.Save(path), IsOk());
    EXPECT_EQ(ReasonOf(driver.Train(life + 2, SampledBy(12345, samples_)).status()),
              "FOREIGN_SAMPLES");
  }
}

}  // namespace
}  // namespace tandem::trainer
