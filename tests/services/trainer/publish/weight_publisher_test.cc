// Whole updates over Gloo and gRPC, in one process.
#include "services/trainer/publish/weight_publisher.h"

#include <algorithm>
#include <cctype>
#include <deque>
#include <limits>
#include <set>

#include "tests/fakes/simulated_device.h"
#include "tests/fakes/weight_pair.h"
#include "tests/support/status_matchers.h"

namespace tandem::trainer {
namespace {

using ::tandem::testing::Endpoint;
using ::tandem::testing::ExpectLive;
using ::tandem::testing::FakeRollout;
using ::tandem::testing::FakeTrainer;
using ::tandem::testing::SimulatedDevice;
using ::tandem::testing::StatusIs;
using ::tandem::testing::TestModel;
using ::testing::AllOf;
using ::testing::HasSubstr;

TestModel WithOffset(TestModel model, double offset) {
  model.offset = offset;
  return model;
}

struct Shape {
  int ranks;
  int64_t bucket_bytes;
  std::string dtype;
  std::string backend = "shared_memory";
  std::string transport = "broadcast";
  bool on_device = false;
};

class UpdateTest : public ::testing::TestWithParam<Shape> {};

TEST_P(UpdateTest, EveryReplicaGetsTheTrainersBytes) {
  const TestModel model = TestModel::Small(GetParam().dtype);
  SimulatedDevice device;
  weights::DeviceOps& ops = GetParam().on_device ? device : weights::CpuOps();
  FakeRollout one(model), two(model);
  one.store.device = two.store.device = &ops;
  ASSERT_OK_AND_ASSIGN(auto trainer,
                       FakeTrainer::Create(model, {.ranks = GetParam().ranks,
                                                   .bucket_bytes = GetParam().bucket_bytes,
                                                   .backend = GetParam().backend,
                                                   .transport = GetParam().transport,
                                                   .device = &ops}));
  for (int version = 3; version < 6; ++version) {
    const TestModel weights = WithOffset(model, version);
    trainer->SetWeights(weights);
    ASSERT_OK_AND_ASSIGN(const PublishReport report,
                         trainer->Publish(version, {Endpoint("one", one), Endpoint("two", two)}));
    ExpectLive(one, weights, version);
    ExpectLive(two, weights, version);
    EXPECT_EQ(report.model_digest, one.store.live_model_digest());
    EXPECT_EQ(report.replicas.size(), 2u);
    EXPECT_TRUE(report.replicas[0].committed && report.replicas[1].committed);
    EXPECT_EQ(report.replicas[0].pause_seconds, 0.25);
    EXPECT_EQ(report.size_bytes, trainer->plan.total_bytes);
    EXPECT_LE(report.times.exposed_sum(), report.seconds);
  }
  // Each tensor on either side, by the device where there is one.
  EXPECT_EQ(device.num_digests >= 3 * 3 * model.manifest().tensors_size(), GetParam().on_device);
}

INSTANTIATE_TEST_SUITE_P(Shapes, UpdateTest,
                         ::testing::Values(Shape{1, 256, "float32"},
                                           Shape{2, 64, "float32", "gloo"},
                                           Shape{2, 256, "float32"}, Shape{3, 8, "float32"},
                                           Shape{2, 1 << 20, "bfloat16"}, Shape{3, 104, "bfloat16"},
                                           Shape{1, 256, "float32", "shared_memory", "reshard"},
                                           Shape{2, 64, "float32", "socket", "reshard"},
                                           Shape{2, 64, "float32", "local_socket", "reshard"},
                                           Shape{3, 8, "float32", "messages", "reshard"},
                                           Shape{3, 104, "bfloat16", "shared_memory", "reshard"},
                                           Shape{1, 256, "bfloat16", "shared_memory", "delta"},
                                           Shape{2, 64, "float32", "socket", "delta"},
                                           Shape{3, 104, "bfloat16", "shared_memory", "delta"},
                                           Shape{2, 256, "bfloat16", "gloo", "broadcast", true},
                                           Shape{2, 64, "float32", "gloo", "reshard", true},
                                           Shape{3, 104, "bfloat16", "messages", "reshard", true},
                                           Shape{3, 104, "bfloat16", "gloo", "delta", true}),
                         [](const auto& info) {
                           return "Ranks" + std::to_string(info.param.ranks) + "Bucket" +
                                  std::to_string(info.param.bucket_bytes) + info.param.dtype +
                                  info.param.backend + info.param.transport +
                                  (info.param.on_device ? "OnDevice" : "");
                         });

TEST(WeightPublisher, AVersionThatIsLiveEverywhereIsNotSentAgain) {
  const TestModel model = TestModel::Small();
  FakeRollout rollout(model);
  ASSERT_OK_AND_ASSIGN(auto trainer, FakeTrainer::Create(model, {}));
  ASSERT_OK(trainer->Publish(1, {Endpoint("r", rollout)}).status());
  ASSERT_OK_AND_ASSIGN(const PublishReport report, trainer->Publish(1, {Endpoint("r", rollout)}));
  EXPECT_TRUE(report.replicas[0].committed);
  EXPECT_EQ(rollout.store.num_commits, 1);
}

TEST(WeightPublisher, AReplicaThatJoinsGetsTheVersionThatTheOthersHave) {
  const TestModel model = TestModel::Small();
  FakeRollout one(model), two(model);
  ASSERT_OK_AND_ASSIGN(auto trainer, FakeTrainer::Create(model, {}));
  ASSERT_OK(trainer->Publish(1, {Endpoint("one", one)}).status());
  ASSERT_OK(trainer->Publish(1, {Endpoint("one", one), Endpoint("two", two)}).status());
  ExpectLive(two, model, 1);
  EXPECT_EQ(one.store.num_commits, 1);
  ASSERT_OK(trainer->Publish(2, {Endpoint("one", one), Endpoint("two", two)}).status());
  ExpectLive(one, model, 2);
  ExpectLive(two, model, 2);
}

TEST(WeightPublisher, OtherParametersAreListedBeforeAnythingIsWritten) {
  const TestModel model = TestModel::Small();
  TestModel other = model;
  other.units[1][0] = {4, 3};
  other.units[2].push_back({2});
  FakeRollout rollout(other);
  ASSERT_OK_AND_ASSIGN(auto trainer, FakeTrainer::Create(model, {}));
  const absl::Status status = trainer->Publish(1, {Endpoint("r", rollout)}).status();
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kFailedPrecondition,
                               AllOf(HasSubstr("replica r, rank 0"), HasSubstr("1 missing: u2.t2"),
                                     HasSubstr("u1.t0 is float32[3, 4], expected float32[4, 3]"))));
  const auto details = rpc::GetDetail<common::v1::UnloadedParams>(status);
  ASSERT_TRUE(details.has_value());
  EXPECT_EQ(details->missing(0), "u2.t2");
  EXPECT_EQ(details->mismatched(0).name(), "u1.t0");
  EXPECT_EQ(rollout.store.live_version(), -1);
  EXPECT_OK(trainer->Barrier());
}

TEST(WeightPublisher, AnUnreachableReplicaIsNamedAndTheTrainersGroupStaysWhole) {
  const TestModel model = TestModel::Small();
  FakeRollout rollout(model);
  ASSERT_OK_AND_ASSIGN(auto trainer, FakeTrainer::Create(model, {}));
  EXPECT_THAT(
      trainer->Publish(1, {Endpoint("r", rollout), {"gone", {"127.0.0.1:1"}}}),
      StatusIs(absl::StatusCode::kUnavailable,
               AllOf(HasSubstr("replica gone, rank 0 (127.0.0.1:1)"), HasSubstr("phase begin"))));
  EXPECT_EQ(rollout.store.live_version(), -1);
  EXPECT_OK(trainer->Barrier());
  EXPECT_OK(trainer->Publish(1, {Endpoint("r", rollout)}).status());
}

TEST(WeightPublisher, UnderAvailableTheOthersGoOn) {
  const TestModel model = TestModel::Small();
  FakeRollout rollout(model);
  ASSERT_OK_AND_ASSIGN(auto trainer,
                       FakeTrainer::Create(model, {.policy = UpdatePolicy::kAvailable}));
  ASSERT_OK_AND_ASSIGN(const PublishReport report,
                       trainer->Publish(1, {{"gone", {"127.0.0.1:1"}}, Endpoint("r", rollout)}));
  EXPECT_FALSE(report.replicas[0].committed);
  EXPECT_THAT(report.replicas[0].error,
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("replica gone")));
  EXPECT_TRUE(report.replicas[1].committed);
  ExpectLive(rollout, model, 1);
}

struct Transport {
  std::string name;
  std::set<size_t> frozen = {};
};

class TransportTest : public ::testing::TestWithParam<Transport> {
 protected:
  static TestModel Model() {
    TestModel model = TestModel::Small();
    model.frozen = GetParam().frozen;
    return model;
  }
};
INSTANTIATE_TEST_SUITE_P(Transports, TransportTest,
                         ::testing::Values(Transport{"broadcast"}, Transport{"reshard"},
                                           Transport{"delta"}, Transport{"broadcast", {0, 2}},
                                           Transport{"reshard", {0, 2}},
                                           Transport{"delta", {0, 2}}),
                         [](const auto& info) {
                           return info.param.name + (info.param.frozen.empty() ? "" : "Frozen");
                         });

TEST_P(TransportTest, ReplicasOfSeveralRanksCommitWhole) {
  const TestModel model = Model();
  FakeRollout one0(model), one1(model), two0(model), two1(model);
  ASSERT_OK_AND_ASSIGN(auto trainer, FakeTrainer::Create(model, {.transport = GetParam().name}));
  for (int version = 1; version < 4; ++version) {
    const TestModel weights = WithOffset(model, version);
    trainer->SetWeights(weights);
    ASSERT_OK(trainer
                  ->Publish(version, {{"one", {one0.address(), one1.address()}},
                                      {"two", {two0.address(), two1.address()}}})
                  .status());
    for (const FakeRollout* rank : {&one0, &one1, &two0, &two1}) {
      ExpectLive(*rank, weights, version);
    }
  }
}

// A rank each holds the whole model here; tests/integration splits it.
TEST_P(TransportTest, ReplicasOfDifferentSizesGetTheSameBytes) {
  const TestModel model = Model();
  std::deque<FakeRollout> ranks;
  for (int i = 0; i < 8; ++i) ranks.emplace_back(model);
  const auto replica = [&](const std::string& id, int first, int count) {
    ReplicaEndpoint endpoint{id, {}};
    for (int i = first; i < first + count; ++i)
      endpoint.rank_addresses.push_back(ranks[i].address());
    return endpoint;
  };
  const std::vector<ReplicaEndpoint> fleet = {replica("one", 0, 1), replica("three", 1, 3),
                                              replica("two", 4, 2), replica("other two", 6, 2)};
  int64_t incarnation = 1, version = 1;
  for (const char* backend : {"messages", "socket"}) {
    if (GetParam().name == "broadcast" && std::string(backend) == "socket") continue;
    ASSERT_OK_AND_ASSIGN(
        auto trainer,
        FakeTrainer::Create(model,
                            {.ranks = 3,
                             .incarnation = incarnation++,
                             .backend = GetParam().name == "broadcast" ? "shared_memory" : backend,
                             .transport = GetParam().name}));
    // Which replica is fed by whom changes with who is there; so does what a delta goes out from.
    const std::vector<std::vector<ReplicaEndpoint>> there = {
        {fleet[0], fleet[1], fleet[2]}, fleet,      fleet, {fleet[0], fleet[2], fleet[3]},
        {fleet[0], fleet[2], fleet[3]}, {fleet[1]}, fleet, fleet};
    for (const std::vector<ReplicaEndpoint>& replicas : there) {
      SCOPED_TRACE(absl::StrCat(backend, ", version ", ++version));
      const TestModel weights = WithOffset(model, static_cast<double>(version));
      trainer->SetWeights(weights);
      ASSERT_OK_AND_ASSIGN(const PublishReport report, trainer->Publish(version, replicas));
      for (const ReplicaEndpoint& endpoint : replicas) {
        for (const FakeRollout& rank : ranks) {
          const auto& addresses = endpoint.rank_addresses;
          if (std::find(addresses.begin(), addresses.end(), rank.address()) == addresses.end())
            continue;
          ExpectLive(rank, weights, version);
        }
      }
      if (GetParam().name == "delta") {
        EXPECT_EQ(report.changed_share.has_value(),
                  &replicas == &there[2] || &replicas == &there[4] || &replicas == &there[7]);
      }
    }
  }
}

TEST(WeightPublisher, NoTrainerRankSendsMoreThanItsPartHoweverManyReplicasThereAre) {
  const TestModel model = TestModel::Small();
  FakeRollout one(model), two(model), three(model);
  ASSERT_OK_AND_ASSIGN(auto trainer,
                       FakeTrainer::Create(model, {.ranks = 3, .transport = "reshard"}));
  ASSERT_OK_AND_ASSIGN(
      const PublishReport report,
      trainer->Publish(1, {Endpoint("one", one), Endpoint("two", two), Endpoint("three", three)}));
  EXPECT_EQ(report.sent_bytes, report.size_bytes);
  EXPECT_LE(report.max_rank_sent_bytes, report.size_bytes / 3 + 64);  // units end unevenly
  ExpectLive(three, model, 1);
}

TEST(WeightPublisher, ADeltaTellsWhatChangedAndIsAppliedOnTheVersionBefore) {
  TestModel model = TestModel::Small("bfloat16");
  model.units = {{{640, 128}}};
  FakeRollout one(model), two(model);
  ASSERT_OK_AND_ASSIGN(auto trainer,
                       FakeTrainer::Create(model, {.bucket_bytes = 1 << 14, .transport = "delta"}));
  const std::vector<ReplicaEndpoint> replicas = {Endpoint("one", one), Endpoint("two", two)};
  ASSERT_OK_AND_ASSIGN(const PublishReport dense, trainer->Publish(1, replicas));
  EXPECT_FALSE(dense.changed_share.has_value());
  const TestModel near = WithOffset(model, 1e-3);
  trainer->SetWeights(near);
  ASSERT_OK_AND_ASSIGN(const PublishReport delta, trainer->Publish(2, replicas));
  ASSERT_TRUE(delta.changed_share.has_value());
  EXPECT_LT(*delta.changed_share, 0.2);
  EXPECT_LT(delta.sent_bytes, dense.sent_bytes / 4);
  ExpectLive(one, near, 2);
  ExpectLive(two, near, 2);
}

TEST(WeightPublisher, AReplicaWithoutTheBaseGetsEverything) {
  const TestModel model = TestModel::Small();
  FakeRollout one(model);
  ASSERT_OK_AND_ASSIGN(auto trainer, FakeTrainer::Create(model, {.transport = "delta"}));
  ASSERT_OK(trainer->Publish(1, {Endpoint("one", one)}).status());
  FakeRollout two(model);
  trainer->SetWeights(WithOffset(model, 2));
  ASSERT_OK_AND_ASSIGN(const PublishReport report,
                       trainer->Publish(2, {Endpoint("one", one), Endpoint("two", two)}));
  EXPECT_FALSE(report.changed_share.has_value());
  ExpectLive(one, WithOffset(model, 2), 2);
  ExpectLive(two, WithOffset(model, 2), 2);
}

TEST(WeightPublisher, AReplicaWhoseBaseIsAnotherThanItWasGetsEverything) {
  const TestModel model = TestModel::Small();
  FakeRollout rollout(model);
  ASSERT_OK_AND_ASSIGN(auto trainer, FakeTrainer::Create(model, {.transport = "delta"}));
  ASSERT_OK(trainer->Publish(1, {Endpoint("r", rollout)}).status());
  rollout.store.SetLiveDigest("something else");
  trainer->SetWeights(WithOffset(model, 2));
  ASSERT_OK_AND_ASSIGN(const PublishReport report, trainer->Publish(2, {Endpoint("r", rollout)}));
  EXPECT_FALSE(report.changed_share.has_value());
  ExpectLive(rollout, WithOffset(model, 2), 2);
}

// Two units of three are frozen; the rest has 53 elements.
TestModel PartlyFrozen(std::string dtype = "float32") {
  TestModel model = TestModel::Small(std::move(dtype));
  model.frozen = {0, 2};
  return model;
}

class FrozenTensorsTest : public ::testing::TestWithParam<Shape> {};

TEST_P(FrozenTensorsTest, TravelOnce) {
  const TestModel model = PartlyFrozen(GetParam().dtype);
  SimulatedDevice device;
  weights::DeviceOps& ops = GetParam().on_device ? device : weights::CpuOps();
  FakeRollout one(model), two(model);
  one.store.device = two.store.device = &ops;
  ASSERT_OK_AND_ASSIGN(auto trainer,
                       FakeTrainer::Create(model, {.ranks = GetParam().ranks,
                                                   .bucket_bytes = GetParam().bucket_bytes,
                                                   .backend = GetParam().backend,
                                                   .transport = GetParam().transport,
                                                   .device = &ops}));
  const int64_t trainable = 53 * (GetParam().dtype == "bfloat16" ? 2 : 4);
  for (int version = 1; version < 5; ++version) {
    const TestModel weights = WithOffset(model, version);
    trainer->SetWeights(weights);
    ASSERT_OK_AND_ASSIGN(const PublishReport report,
                         trainer->Publish(version, {Endpoint("one", one), Endpoint("two", two)}));
    EXPECT_EQ(report.sent_bytes, version == 1 ? trainer->plan.total_bytes : trainable);
    EXPECT_EQ(report.model_digest, one.store.live_model_digest());
    for (FakeRollout* rollout : {&one, &two}) {
      ExpectLive(*rollout, weights, version);
      const auto begun = rollout->begun();
      EXPECT_EQ(begun.back().keeps_frozen(), version > 1);
      // The tables of either kind travel once.
      EXPECT_EQ(begun.back().has_manifest(), version < 3);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, FrozenTensorsTest,
                         ::testing::Values(Shape{1, 256, "float32", "shared_memory", "reshard"},
                                           Shape{2, 64, "float32", "socket", "reshard"},
                                           Shape{3, 8, "float32", "messages", "reshard"},
                                           Shape{3, 104, "bfloat16", "shared_memory", "reshard"},
                                           Shape{2, 64, "float32", "gloo", "reshard", true},
                                           Shape{1, 256, "float32", "shared_memory", "broadcast"},
                                           Shape{2, 64, "float32", "gloo", "broadcast"},
                                           Shape{3, 8, "float32", "shared_memory", "broadcast"},
                                           Shape{3, 104, "bfloat16", "shared_memory", "broadcast"},
                                           Shape{2, 64, "float32", "gloo", "broadcast", true}),
                         [](const auto& info) {
                           return "Ranks" + std::to_string(info.param.ranks) + info.param.dtype +
                                  info.param.backend + info.param.transport +
                                  (info.param.on_device ? "OnDevice" : "");
                         });

class SomeFrozenTest : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Transports, SomeFrozenTest, ::testing::Values("reshard", "broadcast"));

TEST_P(SomeFrozenTest, AReplicaWithoutTheFrozenTensorsGetsEverything) {
  const TestModel model = PartlyFrozen();
  FakeRollout one(model), two(model);
  ASSERT_OK_AND_ASSIGN(auto trainer, FakeTrainer::Create(model, {.transport = GetParam()}));
  ASSERT_OK(trainer->Publish(1, {Endpoint("one", one)}).status());
  trainer->SetWeights(WithOffset(model, 2));
  ASSERT_OK_AND_ASSIGN(const PublishReport joined,
                       trainer->Publish(2, {Endpoint("one", one), Endpoint("two", two)}));
  EXPECT_EQ(joined.sent_bytes, joined.size_bytes);
  ExpectLive(two, WithOffset(model, 2), 2);

  // One whose live weights are not those that it committed.
  one.store.SetLiveDigest("something else");
  trainer->SetWeights(WithOffset(model, 3));
  ASSERT_OK_AND_ASSIGN(const PublishReport changed,
                       trainer->Publish(3, {Endpoint("one", one), Endpoint("two", two)}));
  EXPECT_EQ(changed.sent_bytes, changed.size_bytes);
  ExpectLive(one, WithOffset(model, 3), 3);
  ExpectLive(two, WithOffset(model, 3), 3);

  trainer->SetWeights(WithOffset(model, 4));
  ASSERT_OK_AND_ASSIGN(const PublishReport rest,
                       trainer->Publish(4, {Endpoint("one", one), Endpoint("two", two)}));
  EXPECT_LT(rest.sent_bytes, rest.size_bytes);
  ExpectLive(one, WithOffset(model, 4), 4);
}

TEST_P(SomeFrozenTest, FrozenTensorsThatTheTrainerLoadedAgainAreSentWhereTheyDiffer) {
  const TestModel model = PartlyFrozen();
  FakeRollout rollout(model);
  ASSERT_OK_AND_ASSIGN(auto trainer, FakeTrainer::Create(model, {.transport = GetParam()}));
  ASSERT_OK(trainer->Publish(1, {Endpoint("r", rollout)}).status());
  TestModel loaded = WithOffset(model, 9);
  loaded.frozen.clear();  // other values in every unit
  trainer->SetWeights(loaded);

  ASSERT_OK_AND_ASSIGN(const PublishReport report, trainer->Publish(2, {Endpoint("r", rollout)}));

  EXPECT_EQ(report.sent_bytes, report.size_bytes);
  ExpectLive(rollout, loaded, 2);
}

TEST_P(SomeFrozenTest, AReplicaToRepairGetsTheFrozenTensorsToo) {
  const TestModel model = PartlyFrozen();
  FakeRollout rollout(model);
  ASSERT_OK_AND_ASSIGN(auto trainer, FakeTrainer::Create(model, {.transport = GetParam()}));
  ReplicaEndpoint endpoint = Endpoint("r", rollout);
  ASSERT_OK(trainer->Publish(1, {endpoint}).status());
  endpoint.resend = true;
  ASSERT_OK_AND_ASSIGN(const PublishReport report, trainer->Publish(1, {endpoint}));
  EXPECT_EQ(report.sent_bytes, report.size_bytes);
}

TEST(WeightPublisher, AnOlderTrainerIsRefused) {
  const TestModel model = TestModel::Small();
  FakeRollout rollout(model);
  ASSERT_OK_AND_ASSIGN(auto newer, FakeTrainer::Create(model, {.incarnation = 5}));
  ASSERT_OK_AND_ASSIGN(auto older, FakeTrainer::Create(model, {.incarnation = 4}));
  ASSERT_OK(newer->Publish(1, {Endpoint("r", rollout)}).status());
  EXPECT_THAT(older->Publish(2, {Endpoint("r", rollout)}),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("incarnation 4 is over")));
  ExpectLive(rollout, model, 1);
}

common::v1::WeightOwner OwnerOfRun(const std::string& id, bool take_over = false) {
  common::v1::WeightOwner owner;
  owner.set_run_id(id);
  owner.mutable_hold()->set_seconds(3600);
  owner.set_take_over(take_over);
  return owner;
}

TEST(WeightPublisher, AnotherRunsTrainerIsRefusedUnlessItTakesOver) {
  const TestModel model = TestModel::Small();
  FakeRollout rollout(model);
  ASSERT_OK_AND_ASSIGN(auto first, FakeTrainer::Create(model, {.incarnation = 4}));
  ASSERT_OK_AND_ASSIGN(auto second, FakeTrainer::Create(model, {.incarnation = 5}));
  first->SetOwner(OwnerOfRun("a"));
  second->SetOwner(OwnerOfRun("b"));
  second->SetWeights(WithOffset(model, 3));
  ASSERT_OK(first->Publish(1, {Endpoint("r", rollout)}).status());

  EXPECT_THAT(second->Publish(2, {Endpoint("r", rollout)}),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("belongs to run a")));
  // It was not even begun, and the owner goes on.
  ExpectLive(rollout, model, 1);
  ASSERT_OK(first->Publish(2, {Endpoint("r", rollout)}).status());

  second->SetOwner(OwnerOfRun("b", /*take_over=*/true));
  ASSERT_OK(second->Publish(2, {Endpoint("r", rollout)}).status());
  ExpectLive(rollout, WithOffset(model, 3), 2);
  EXPECT_EQ(rollout.store.live_incarnation(), 5);
  EXPECT_EQ(rollout.owner.num_take_overs(), 1);
  EXPECT_THAT(first->Publish(3, {Endpoint("r", rollout)}),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("incarnation 4"), HasSubstr("belongs to run b"))));
}

TEST(WeightPublisher, TheSameNumberFromAnotherTrainerIsAnotherVersion) {
  const TestModel model = TestModel::Small();
  FakeRollout rollout(model);
  ASSERT_OK_AND_ASSIGN(auto first, FakeTrainer::Create(model, {.incarnation = 4}));
  ASSERT_OK(first->Publish(1, {Endpoint("r", rollout)}).status());
  ASSERT_OK_AND_ASSIGN(auto second, FakeTrainer::Create(model, {.incarnation = 5}));
  second->SetWeights(WithOffset(model, 3));

  ASSERT_OK_AND_ASSIGN(const PublishReport report, second->Publish(1, {Endpoint("r", rollout)}));

  EXPECT_GT(report.sent_bytes, 0);
  ExpectLive(rollout, WithOffset(model, 3), 1);
}

TEST(WeightPublisher, ARolloutThatReportsAVersionOutOfRangeIsNamed) {
  const TestModel model = TestModel::Small();
  FakeRollout rollout(model);
  rollout.store.SetLiveVersion(std::numeric_limits<int64_t>::min());
  ASSERT_OK_AND_ASSIGN(auto trainer, FakeTrainer::Create(model, {}));
  EXPECT_THAT(trainer->Publish(1, {Endpoint("r", rollout)}),
              StatusIs(absl::StatusCode::kOutOfRange,
                       AllOf(HasSubstr("replica r"), HasSubstr("-9223372036854775808"))));
}

TEST(WeightPublisher, ACommitThatFailsForAMomentIsRepeated) {
  const TestModel model = TestModel::Small();
  FakeRollout rollout(model);
  rollout.store.commit_error = absl::UnavailableError("the scheduler is busy");
  ASSERT_OK_AND_ASSIGN(auto trainer, FakeTrainer::Create(model, {}));
  EXPECT_OK(trainer->Publish(1, {Endpoint("r", rollout)}).status());
  ExpectLive(rollout, model, 1);
}

TEST(WeightPublisher, ListsOfReplicasThatMakeNoSenseAreRefused) {
  const TestModel model = TestModel::Small();
  ASSERT_OK_AND_ASSIGN(auto trainer, FakeTrainer::Create(model, {}));
  EXPECT_THAT(trainer->Publish(1, {}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("at least one")));
  EXPECT_THAT(trainer->Publish(1, {{"a", {"x:1"}}, {"a", {"x:2"}}}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("listed twice")));
  EXPECT_OK(trainer->Barrier());
}

}  // namespace
}  // namespace tandem::trainer
