// Replicas whose calls work and whose data plane does not, in each way in which that can be: under
// update_policy "available" each attempt leads on, and what can be served is.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/net/reserved_port.h"
#include "tests/fakes/weight_pair.h"
#include "tests/support/status_matchers.h"

namespace tandem::trainer {
namespace {

using ::tandem::testing::Endpoint;
using ::tandem::testing::ExpectLive;
using ::tandem::testing::FakeRollout;
using ::tandem::testing::FakeTrainer;
using ::tandem::testing::TestModel;
using ::testing::AnyOf;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using BeginUpdateRequest = rollout::v1::BeginUpdateRequest;

// The rank hears the go key, but meets none of its neighbours.
void LoseFrom(BeginUpdateRequest& request) {
  if (!request.has_rendezvous()) return;  // it reads from another
  request.mutable_rendezvous()->set_rank(request.rendezvous().size());
  request.mutable_rendezvous()->set_size(request.rendezvous().size() + 1);
}

// The same with those that it feeds.
void LoseForward(BeginUpdateRequest& request) {
  if (!request.has_forward()) return;
  request.mutable_forward()->set_prefix("nowhere");
}

// It waits for a key that nobody sets.
void Hang(BeginUpdateRequest& request) {
  if (!request.has_rendezvous()) return;
  request.mutable_rendezvous()->set_prefix("nowhere");
}

class HalfReachableTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    auto made = FakeTrainer::Create(model_, {.policy = UpdatePolicy::kAvailable,
                                             .blame_grace = absl::Seconds(1),
                                             .join_timeout = absl::Milliseconds(500),
                                             .backend = "socket",
                                             .transport = GetParam()});
    ASSERT_OK(made.status());
    trainer_ = *std::move(made);
    const auto port = net::ReservePort();
    ASSERT_OK(port.status());
    closed_port_ = *port;
  }

  std::function<void(BeginUpdateRequest&)> LoseStore() const {
    return [port = closed_port_](BeginUpdateRequest& request) {
      if (request.has_rendezvous()) request.mutable_rendezvous()->set_port(port);
    };
  }

  absl::StatusOr<PublishReport> Publish(int64_t version,
                                        const std::vector<FakeRollout*>& rollouts) {
    std::vector<ReplicaEndpoint> endpoints;
    for (size_t i = 0; i < rollouts.size(); ++i) {
      endpoints.push_back(Endpoint("r" + std::to_string(i), *rollouts[i]));
    }
    return trainer_->Publish(version, endpoints, absl::Seconds(20));
  }

  // Times that it was asked to take part in the chain.
  static int InChain(const FakeRollout& rollout) {
    int count = 0;
    for (const auto& request : rollout.begun()) count += request.has_rendezvous() ? 1 : 0;
    return count;
  }

  const TestModel model_ = TestModel::Small();
  std::unique_ptr<FakeTrainer> trainer_;
  int closed_port_ = 0;
};
INSTANTIATE_TEST_SUITE_P(Transports, HalfReachableTest, ::testing::Values("reshard", "delta"));

TEST_P(HalfReachableTest, OneThatCannotReachTheRendezvousReadsFromTheOther) {
  FakeRollout one(model_), two(model_);
  two.AlterUpdates(LoseStore());
  ASSERT_OK_AND_ASSIGN(PublishReport report, Publish(1, {&one, &two}));
  ExpectLive(one, model_, 1);
  ExpectLive(two, model_, 1);
  EXPECT_EQ(report.replicas[1].fed_by, "r0");
  EXPECT_OK(report.replicas[1].error);

  // It is known now: the next update does not wait for it.
  ASSERT_OK_AND_ASSIGN(report, Publish(2, {&one, &two}));
  EXPECT_EQ(two.store.live_version(), 2);
  EXPECT_EQ(InChain(two), 1);
  // And then it is tried again; what works is used.
  two.AlterUpdates(nullptr);
  ASSERT_OK_AND_ASSIGN(report, Publish(3, {&one, &two}));
  EXPECT_EQ(two.store.live_version(), 3);
  EXPECT_EQ(InChain(two), 2);
  EXPECT_EQ(report.replicas[1].fed_by, "");
}

TEST_P(HalfReachableTest, ALinkBetweenTwoThatBothReachTheTrainerIsGoneRound) {
  FakeRollout one(model_), two(model_), three(model_);
  one.AlterUpdates(LoseForward);  // it can feed nobody
  ASSERT_OK(Publish(1, {&one, &two, &three}).status());
  for (const FakeRollout* rollout : {&one, &two, &three}) ExpectLive(*rollout, model_, 1);
  EXPECT_EQ(InChain(one), 2);
  ASSERT_OK(Publish(2, {&one, &two, &three}).status());
  for (const FakeRollout* rollout : {&one, &two, &three}) ExpectLive(*rollout, model_, 2);
  EXPECT_EQ(InChain(one), 3);  // the last of the chain
}

TEST_P(HalfReachableTest, OneThatTheTrainerCannotFeedIsFedByTheOther) {
  FakeRollout one(model_), two(model_);
  one.AlterUpdates(LoseFrom);
  ASSERT_OK_AND_ASSIGN(const PublishReport report, Publish(1, {&one, &two}));
  ExpectLive(one, model_, 1);
  ExpectLive(two, model_, 1);
  EXPECT_EQ(report.replicas[0].fed_by, "r1");
}

TEST_P(HalfReachableTest, OneThatIsReadyAndThenHangsIsLeftOut) {
  FakeRollout one(model_), two(model_);
  two.AlterUpdates(Hang);
  ASSERT_OK_AND_ASSIGN(const PublishReport report, Publish(1, {&one, &two}));
  ExpectLive(one, model_, 1);
  EXPECT_FALSE(report.replicas[1].committed);
  EXPECT_THAT(std::string(report.replicas[1].error.message()),
              AllOf(HasSubstr("replica r1, rank 0"), HasSubstr("no answer within")));
}

TEST_P(HalfReachableTest, OneRankOfAReplicaThatIsCutOffLeavesTheOthersAlone) {
  FakeRollout one(model_), rank0(model_), rank1(model_);
  rank1.AlterUpdates(LoseStore());
  const std::vector<ReplicaEndpoint> replicas = {{"wide", {rank0.address(), rank1.address()}},
                                                 {"narrow", {one.address()}}};
  ASSERT_OK_AND_ASSIGN(const PublishReport report,
                       trainer_->Publish(1, replicas, absl::Seconds(20)));
  ExpectLive(one, model_, 1);
  EXPECT_FALSE(report.replicas[0].committed);  // nobody of its size has the version
  EXPECT_EQ(rank0.store.live_version(), -1);
  EXPECT_THAT(std::string(report.replicas[0].error.message()), HasSubstr("replica wide, rank 1"));
}

TEST_P(HalfReachableTest, WhereNobodyCanBeFedTheErrorSaysToTryAgain) {
  FakeRollout one(model_), two(model_);
  one.AlterUpdates(LoseFrom);
  two.AlterUpdates(LoseFrom);
  const absl::Status status = Publish(1, {&one, &two}).status();
  EXPECT_THAT(status.code(),
              AnyOf(absl::StatusCode::kUnavailable, absl::StatusCode::kDeadlineExceeded))
      << status;
  // Nothing of it stays behind.
  one.AlterUpdates(nullptr);
  two.AlterUpdates(nullptr);
  ASSERT_OK(Publish(1, {&one, &two}).status());
  ExpectLive(one, model_, 1);
  ExpectLive(two, model_, 1);
}

// Of three units the first and the last are frozen: these tensors.
constexpr int kFrozenTensors[] = {0, 4, 5};

// The second of two replicas cannot reach the rendezvous from its second version on, so it reads
// from the first.
class FrozenHalfReachableTest : public ::testing::Test {
 protected:
  void SetUp() override {
    model_.frozen = {0, 2};
    auto made = FakeTrainer::Create(model_, {.policy = UpdatePolicy::kAvailable,
                                             .blame_grace = absl::Seconds(1),
                                             .join_timeout = absl::Milliseconds(500),
                                             .backend = "socket",
                                             .transport = "reshard"});
    ASSERT_OK(made.status());
    trainer_ = *std::move(made);
    one_ = std::make_unique<FakeRollout>(model_);
    two_ = std::make_unique<FakeRollout>(model_);
    ASSERT_OK(Publish(1).status());
    two_->AlterUpdates(LoseStore);
  }

  static void LoseStore(BeginUpdateRequest& request) {
    if (request.has_rendezvous()) request.mutable_rendezvous()->set_port(1);
  }

  // Publishes weights that differ from version to version, but for the frozen ones.
  absl::StatusOr<PublishReport> Publish(int version) {
    model_.offset = version;
    trainer_->SetWeights(model_);
    return trainer_->Publish(version, {Endpoint("one", *one_), Endpoint("two", *two_)},
                             absl::Seconds(20));
  }

  TestModel model_ = TestModel::Small();
  std::unique_ptr<FakeTrainer> trainer_;
  std::unique_ptr<FakeRollout> one_, two_;
};

TEST_F(FrozenHalfReachableTest, OneThatReadsFromTheOtherKeepsItsFrozenTensors) {
  ASSERT_OK_AND_ASSIGN(const PublishReport report, Publish(2));
  EXPECT_EQ(report.replicas[1].fed_by, "one");
  ExpectLive(*two_, model_, 2);
  ASSERT_EQ(one_->reads().size(), 1);
  EXPECT_THAT(one_->reads()[0].kept_tensors(), ElementsAreArray(kFrozenTensors));
  EXPECT_TRUE(two_->begun().back().keeps_frozen());
}

TEST_F(FrozenHalfReachableTest, OneWhoseLiveWeightsAreOthersReadsEverything) {
  two_->AlterUpdates([](BeginUpdateRequest& request) {
    LoseStore(request);
    if (!request.has_rendezvous()) request.set_base_model_digest("something else");
  });
  ASSERT_OK_AND_ASSIGN(const PublishReport report, Publish(2));
  EXPECT_EQ(report.replicas[1].fed_by, "one");
  ExpectLive(*two_, model_, 2);
  ASSERT_EQ(one_->reads().size(), 1);  // the update that kept some was refused before
  EXPECT_THAT(one_->reads()[0].kept_tensors(), IsEmpty());
}

TEST_F(FrozenHalfReachableTest, OneWhoseFrozenTensorsAreDamagedReadsEverything) {
  // Its memory fails after the commit.
  ASSERT_OK(two_->receiver.RunExclusive([](rollout::WeightStore& store) {
    const_cast<std::byte&>(store.Live(kFrozenTensors[0])[0]) ^= std::byte{1};
    return absl::OkStatus();
  }));
  ASSERT_OK_AND_ASSIGN(const PublishReport report, Publish(2));
  EXPECT_EQ(report.replicas[1].fed_by, "one");
  ExpectLive(*two_, model_, 2);
  ASSERT_EQ(one_->reads().size(), 2);
  EXPECT_THAT(one_->reads()[0].kept_tensors(), ElementsAreArray(kFrozenTensors));
  EXPECT_THAT(one_->reads()[1].kept_tensors(), IsEmpty());
}

TEST(HalfReachable, InABroadcastEachIsTriedByItself) {
  const TestModel model = TestModel::Small();
  FakeRollout one(model), two(model);
  two.AlterUpdates(LoseFrom);
  ASSERT_OK_AND_ASSIGN(auto trainer, FakeTrainer::Create(model, {.policy = UpdatePolicy::kAvailable,
                                                                 .join_timeout = absl::Seconds(1),
                                                                 .backend = "gloo"}));
  ASSERT_OK_AND_ASSIGN(
      const PublishReport report,
      trainer->Publish(1, {Endpoint("one", one), Endpoint("two", two)}, absl::Seconds(20)));
  ExpectLive(one, model, 1);
  EXPECT_FALSE(report.replicas[1].committed);
  EXPECT_FALSE(report.replicas[1].error.ok());
}

}  // namespace
}  // namespace tandem::trainer
