// Replicas that join late and read the version from those that have it.
#include "services/trainer/publish/stream_feed.h"

#include <memory>
#include <string>
#include <vector>

#include "tests/fakes/weight_pair.h"
#include "tests/support/status_matchers.h"

namespace tandem::trainer {
namespace {

using ::tandem::testing::Endpoint;
using ::tandem::testing::ExpectLive;
using ::tandem::testing::FakeRollout;
using ::tandem::testing::FakeTrainer;
using ::tandem::testing::StatusIs;
using ::tandem::testing::TestModel;
using ::testing::AllOf;
using ::testing::HasSubstr;

class StreamFeedTest : public ::testing::TestWithParam<const char*> {
 protected:
  absl::StatusOr<std::unique_ptr<FakeTrainer>> MakeTrainer(FakeTrainer::Options options = {}) {
    options.transport = GetParam();
    return FakeTrainer::Create(model_, options);
  }

  const TestModel model_ = TestModel::Small();
};
INSTANTIATE_TEST_SUITE_P(Transports, StreamFeedTest, ::testing::Values("reshard", "delta"));

TEST_P(StreamFeedTest, AReplicaThatJoinsLateReadsTheVersionAndTheTrainerSendsNothing) {
  FakeRollout one(model_), two(model_);
  ASSERT_OK_AND_ASSIGN(auto trainer, MakeTrainer());
  ASSERT_OK_AND_ASSIGN(const PublishReport first, trainer->Publish(1, {Endpoint("one", one)}));
  ASSERT_OK_AND_ASSIGN(const PublishReport report,
                       trainer->Publish(1, {Endpoint("one", one), Endpoint("two", two)}));
  ExpectLive(two, model_, 1);
  EXPECT_EQ(report.sent_bytes, 0);
  EXPECT_EQ(report.model_digest, first.model_digest);
  EXPECT_TRUE(report.replicas[1].committed);
  EXPECT_EQ(report.replicas[1].fed_by, "one");
  EXPECT_EQ(one.store.num_commits, 1);
  EXPECT_EQ(one.reads().size(), 1);
}

TEST_P(StreamFeedTest, TheNextVersionTravelsAsIfItHadBeenThereAllAlong) {
  FakeRollout one(model_), two(model_);
  ASSERT_OK_AND_ASSIGN(auto trainer, MakeTrainer());
  ASSERT_OK(trainer->Publish(1, {Endpoint("one", one)}).status());
  ASSERT_OK(trainer->Publish(1, {Endpoint("one", one), Endpoint("two", two)}).status());
  TestModel next = model_;
  next.offset = 4;
  trainer->SetWeights(next);
  ASSERT_OK_AND_ASSIGN(const PublishReport report,
                       trainer->Publish(2, {Endpoint("one", one), Endpoint("two", two)}));
  ExpectLive(one, next, 2);
  ExpectLive(two, next, 2);
  EXPECT_EQ(report.changed_share.has_value(), std::string(GetParam()) == "delta");
  EXPECT_EQ(two.reads().size(), 0);
}

TEST_P(StreamFeedTest, SeveralAreSharedOutOverThoseThatHaveTheVersion) {
  std::vector<std::unique_ptr<FakeRollout>> rollouts;
  std::vector<ReplicaEndpoint> endpoints;
  for (int i = 0; i < 6; ++i) {
    rollouts.push_back(std::make_unique<FakeRollout>(model_));
    endpoints.push_back(Endpoint("r" + std::to_string(i), *rollouts[i]));
  }
  ASSERT_OK_AND_ASSIGN(auto trainer, MakeTrainer());
  ASSERT_OK(trainer->Publish(1, {endpoints[0], endpoints[1]}).status());
  ASSERT_OK_AND_ASSIGN(const PublishReport report, trainer->Publish(1, endpoints));
  EXPECT_EQ(report.sent_bytes, 0);
  for (int i = 2; i < 6; ++i) {
    ExpectLive(*rollouts[i], model_, 1);
    EXPECT_EQ(report.replicas[i].fed_by, "r" + std::to_string(i % 2));
  }
  EXPECT_EQ(rollouts[0]->reads().size(), 2);
  EXPECT_EQ(rollouts[1]->reads().size(), 2);
}

TEST_P(StreamFeedTest, EachRankReadsFromTheRankOfItsNumber) {
  FakeRollout a0(model_), a1(model_), b0(model_), b1(model_);
  const ReplicaEndpoint a{"a", {a0.address(), a1.address()}}, b{"b", {b0.address(), b1.address()}};
  ASSERT_OK_AND_ASSIGN(auto trainer, MakeTrainer({}));
  ASSERT_OK(trainer->Publish(1, {a}).status());
  ASSERT_OK_AND_ASSIGN(const PublishReport report, trainer->Publish(1, {a, b}));
  EXPECT_EQ(report.sent_bytes, 0);
  ExpectLive(b0, model_, 1);
  ExpectLive(b1, model_, 1);
  EXPECT_EQ(a0.reads().size(), 1);
  EXPECT_EQ(a1.reads().size(), 1);
}

TEST_P(StreamFeedTest, AVersionOfTheSameNumberFromAnotherTrainerFeedsNobodyAndIsReplaced) {
  FakeRollout one(model_), two(model_);
  {
    ASSERT_OK_AND_ASSIGN(auto trainer, MakeTrainer());
    TestModel other = model_;
    other.offset = 7;
    trainer->SetWeights(other);
    ASSERT_OK(trainer->Publish(1, {Endpoint("one", one)}).status());
  }
  ASSERT_OK_AND_ASSIGN(auto trainer, MakeTrainer({.incarnation = 2}));
  ASSERT_OK_AND_ASSIGN(const PublishReport report,
                       trainer->Publish(1, {Endpoint("one", one), Endpoint("two", two)}));
  ExpectLive(one, model_, 1);
  ExpectLive(two, model_, 1);
  EXPECT_GT(report.sent_bytes, 0);
  ASSERT_OK(trainer->Publish(2, {Endpoint("one", one), Endpoint("two", two)}).status());
  ExpectLive(one, model_, 2);
  ExpectLive(two, model_, 2);
}

TEST_P(StreamFeedTest, WeightsThatAreNotWhatTheTrainerSentAreNotTaken) {
  FakeRollout bad(model_), good(model_), late(model_);
  ASSERT_OK_AND_ASSIGN(auto trainer, MakeTrainer());
  ASSERT_OK(trainer->Publish(1, {Endpoint("bad", bad), Endpoint("good", good)}).status());
  // Its memory fails after the commit.
  ASSERT_OK(bad.receiver.RunExclusive([](rollout::WeightStore& store) {
    const_cast<std::byte&>(store.Live(3)[0]) ^= std::byte{1};
    return absl::OkStatus();
  }));
  ASSERT_OK_AND_ASSIGN(
      const PublishReport report,
      trainer->Publish(1, {Endpoint("bad", bad), Endpoint("good", good), Endpoint("late", late)}));
  EXPECT_EQ(report.replicas[2].fed_by, "good");
  ExpectLive(late, model_, 1);
}

TEST_P(StreamFeedTest, AReplicaWithOtherParametersIsToldSoAndUnderAvailableTheOthersGoOn) {
  TestModel other = model_;
  other.units[1][0] = {4, 3};
  FakeRollout one(model_), strange(other), late(model_);
  ASSERT_OK_AND_ASSIGN(auto trainer, MakeTrainer({.policy = UpdatePolicy::kAvailable}));
  ASSERT_OK(trainer->Publish(1, {Endpoint("one", one)}).status());
  ASSERT_OK_AND_ASSIGN(const PublishReport report,
                       trainer->Publish(1, {Endpoint("one", one), Endpoint("strange", strange),
                                            Endpoint("late", late)}));
  EXPECT_THAT(report.replicas[1].error,
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("replica strange, rank 0"), HasSubstr("u1.t0"))));
  EXPECT_EQ(report.replicas[2].fed_by, "one");
  ExpectLive(late, model_, 1);
  EXPECT_OK(trainer->Barrier());
}

TEST_P(StreamFeedTest, AReplicaThatCannotCommitIsNamedAndTheRepeatBringsItUp) {
  FakeRollout one(model_), late(model_);
  ASSERT_OK_AND_ASSIGN(auto trainer, MakeTrainer());
  ASSERT_OK(trainer->Publish(1, {Endpoint("one", one)}).status());
  late.store.commit_error = absl::InternalError("the engine is busy");
  EXPECT_THAT(trainer->Publish(1, {Endpoint("one", one), Endpoint("late", late)}),
              StatusIs(absl::StatusCode::kInternal,
                       AllOf(HasSubstr("replica late, rank 0"), HasSubstr("phase commit"))));
  EXPECT_OK(trainer->Barrier());
  EXPECT_THAT(trainer->Publish(1, {Endpoint("one", one), Endpoint("late", late)}).status(),
              ::tandem::testing::IsOk());
  ExpectLive(late, model_, 1);
}

TEST(StreamFeed, WithBroadcastTheTrainerFeedsALateReplica) {
  const TestModel model = TestModel::Small();
  FakeRollout one(model), two(model);
  ASSERT_OK_AND_ASSIGN(auto trainer, FakeTrainer::Create(model, {}));
  ASSERT_OK(trainer->Publish(1, {Endpoint("one", one)}).status());
  ASSERT_OK_AND_ASSIGN(const PublishReport report,
                       trainer->Publish(1, {Endpoint("one", one), Endpoint("two", two)}));
  ExpectLive(two, model, 1);
  EXPECT_GT(report.sent_bytes, 0);
  EXPECT_EQ(one.reads().size(), 0);
}

}  // namespace
}  // namespace tandem::trainer
