#include "common/weights/network_model.h"

#include "tests/common/weights/plan_fixtures.h"
#include "tests/support/status_matchers.h"

namespace tandem::weights {
namespace {

using namespace testing;  // NOLINT: the fixtures
using ::testing::HasSubstr;

// A tensor of 64 rows, split over tp ranks.
ModelLayout OneTensor(int64_t elements, int tp) {
  const int64_t rows = 64 / tp;
  ModelLayout layout;
  layout.tensors = {{"w", 64, elements / 64}};
  for (int rank = 0; rank < tp; ++rank) {
    const TensorBox box{.first_row = rank * rows, .rows = rows, .columns = elements / 64};
    layout.parts.push_back({{box}, {box.elements()}});
  }
  return layout;
}

// 4 trainer ranks and replicas of 2 ranks each, of a model of `elements` two-byte elements.
FleetPlan Fleet(int replicas, int64_t elements, int64_t bucket_bytes) {
  return *MakeFleetPlan(TrainerHoldings(OneTensor(elements, 1), {.dp_shard = 4}),
                        {{2, RolloutHoldings(OneTensor(elements, 2))}},
                        std::vector<int>(replicas, 2), {2, bucket_bytes});
}

constexpr Network kHosts{.ranks_per_host = 2,
                         .nics_per_host = 2,
                         .collective_nics = 2,
                         .nic = 1e9,
                         .local = 10e9,
                         .latency = 0};

TEST(NetworkModel, AChainTakesTheTimeOfOneReplicaAndABucketForEachFurtherOne) {
  // 64 MB in 1 MB buckets: 32 MB into each NIC of a replica, at 1 GB/s.
  const double one = PredictReshard(Fleet(1, 32'000'000, 1'000'000), kHosts).seconds;
  const double nine = PredictReshard(Fleet(9, 32'000'000, 1'000'000), kHosts).seconds;
  EXPECT_NEAR(one, 0.032, 0.0005);
  EXPECT_NEAR(nine - one, 8 * 0.001, 0.0005);
}

TEST(NetworkModel, TellsTheBytesOfNicsAndWhatIsBusyLongest) {
  const Prediction reshard = PredictReshard(Fleet(3, 32'000'000, 1'000'000), kHosts);
  EXPECT_DOUBLE_EQ(reshard.trainer_nics.max, 16e6);
  EXPECT_DOUBLE_EQ(reshard.trainer_nics.mean, 16e6);
  EXPECT_DOUBLE_EQ(reshard.rollout_nics.max, 32e6);
  EXPECT_NEAR(reshard.busy_seconds, 0.032, 1e-9);
  EXPECT_THAT(reshard.critical_path, HasSubstr("NIC"));
}

TEST(NetworkModel, BroadcastIsBoundByTheLeadersGather) {
  const ModelLayout model = OneTensor(32'000'000, 1);
  const FleetPlan fleet =
      *MakeFleetPlan(TrainerHoldings(model, {.dp_shard = 4}), {{1, RolloutHoldings(model)}},
                     {1, 1, 1, 1, 1, 1}, {2, 1'000'000});
  const Prediction broadcast = PredictBroadcast(fleet, kHosts, 64'000'000, 1'000'000);
  // Half of the model comes from another host by one NIC; the broadcast has two.
  EXPECT_NEAR(broadcast.seconds, 0.032, 0.008);
  EXPECT_DOUBLE_EQ(broadcast.rollout_nics.max, 32e6);
  EXPECT_DOUBLE_EQ(broadcast.trainer_nics.max, 32e6);
}

TEST(NetworkModel, PartsOfABroadcastLeaveByTheLeadersNic) {
  const Prediction one =
      PredictBroadcast(Fleet(1, 32'000'000, 1'000'000), kHosts, 64'000'000, 1'000'000);
  const Prediction nine =
      PredictBroadcast(Fleet(9, 32'000'000, 1'000'000), kHosts, 64'000'000, 1'000'000);
  EXPECT_NEAR(one.seconds, 0.064, 0.002);
  // Half a bucket for each further replica.
  EXPECT_NEAR(nine.seconds - one.seconds, 8 * 0.0005, 1e-5);
  for (const Prediction& broadcast : {one, nine}) {
    EXPECT_DOUBLE_EQ(broadcast.trainer_nics.max, 64e6);
    EXPECT_DOUBLE_EQ(broadcast.rollout_nics.max, 32e6);
    EXPECT_DOUBLE_EQ(broadcast.rollout_nics.mean, 32e6);
  }
}

TEST(NetworkModel, ADeltaTakesItsShareOfTheWire) {
  const FleetPlan fleet = Fleet(3, 32'000'000, 1'000'000);
  const Prediction reshard = PredictReshard(fleet, kHosts);
  const Prediction delta =
      PredictDelta(fleet, kHosts, {.density = 0.05, .bytes_per_changed = 4, .encode = 1e12});
  EXPECT_NEAR(delta.rollout_nics.max / reshard.rollout_nics.max, 0.1, 1e-9);
  EXPECT_NEAR(delta.seconds / reshard.seconds, 0.1, 0.01);
  EXPECT_NEAR(PredictDelta(fleet, kHosts, {.density = 1, .encode = 1e12}).rollout_nics.max,
              reshard.rollout_nics.max, 1);
}

TEST(NetworkModel, RanksOfOneHostShareItsCores) {
  const FleetPlan fleet = Fleet(1, 32'000'000, 1'000'000);
  const Network host = MeasuredHost(/*cores=*/2, /*local=*/4e9, /*pack=*/4e9, /*unpack=*/4e9,
                                    /*fixed=*/0.01);
  // 64 MB packed, moved and unpacked once each: 48 ms of one core.
  EXPECT_NEAR(PredictReshard(fleet, host).seconds, 0.024 + 0.01, 0.001);
  // Gathered by three quarters, packed once, moved to two ranks and unpacked there, half to each.
  EXPECT_NEAR(PredictBroadcast(fleet, host, 64'000'000, 1'000'000).seconds, 0.016 * 3.75 / 2 + 0.01,
              0.001);
}

TEST(NetworkModel, OnRailsBytesLeaveByTheReceiversNic) {
  Network rails = kHosts;
  rails.rails = true;
  const Prediction prediction = PredictReshard(Fleet(1, 32'000'000, 1'000'000), rails);
  EXPECT_DOUBLE_EQ(prediction.trainer_nics.mean, 16e6);
  EXPECT_GE(prediction.seconds, 0.032);
}

TEST(NetworkModel, TheRestOfALongChainGoesOnAtThePaceOfTheFirstHops) {
  // More messages times hops than are simulated. A replica's bucket is taken from when its bytes
  // come until they have arrived at the next, so two of them pass one message in a wire's time and
  // a latency.
  Network network = kHosts;
  network.latency = 0.001;
  const FleetPlan fleet = Fleet(2000, 32'000'000, 4'000);
  EXPECT_DOUBLE_EQ(PredictReshard(fleet, network).rollout_nics.mean, 32e6);
  const double hop = 4'000 / 1e9 + network.latency;
  EXPECT_NEAR(PredictReshard(fleet, network).seconds / ((8'000 + 1'999) * hop), 1, 0.01);
}

}  // namespace
}  // namespace tandem::weights
