#include "common/weights/fleet_plan.h"

#include <set>

#include "common/weights/model_layout.h"
#include "common/weights/reshard_check.h"
#include "tests/common/weights/plan_fixtures.h"
#include "tests/support/status_matchers.h"

namespace tandem::weights {
namespace {

using namespace testing;  // NOLINT: the fixtures
using ::tandem::testing::IsOk;
using ::tandem::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

absl::StatusOr<FleetPlan> Plan(const model::ModelSpec& spec, const model::UnitLimits& limits,
                               const comm::MeshShape& mesh, const std::vector<int>& replicas) {
  std::map<int, Holdings> rollout;
  for (const int tp : replicas) rollout[tp] = RolloutHoldings(*LayoutOf(spec, {}, tp));
  return MakeFleetPlan(TrainerHoldings(*LayoutOf(spec, limits, mesh.tp), mesh), rollout, replicas,
                       {sizeof(Value), 600});
}

// What a replica's ranks exchange; they send from the memory that they receive into.
void Exchange(const FleetPlan& fleet, std::vector<Memory>& replica) {
  const std::vector<Memory> before = replica;
  testing::CarryOut(*fleet.exchanges.at(static_cast<int>(replica.size())), before, replica);
}

// Feeds all replicas along the chain; those that forward send on the messages that they got.
void FeedAll(const FleetPlan& fleet, const std::vector<Memory>& trainer,
             std::vector<std::vector<Memory>>& replicas) {
  testing::CarryOut(*fleet.feed, trainer, replicas[fleet.chain[0]]);
  Exchange(fleet, replicas[fleet.chain[0]]);
  const ReshardPlan* received = fleet.feed.get();
  for (const ChainLink& link : fleet.links) {
    std::vector<Memory>& to = replicas[link.to_replica];
    if (link.plan != nullptr) {
      received = link.plan.get();
      testing::CarryOut(*received, replicas[link.from_replica], to);
    } else {
      for (const Message& message : received->messages) {
        // The bucket holds what arrived: the same bytes that lie in the replica now.
        Message forwarded = message;
        for (MessagePiece& piece : forwarded.pieces) piece.from = piece.to;
        std::vector<Value> bucket;
        Pack(forwarded, replicas[link.from_replica][message.to], bucket);
        Unpack(message, bucket, to[message.to]);
      }
    }
    Exchange(fleet, to);
  }
}

TEST(FleetPlan, FeedsReplicasOfMixedSizesAlongAChain) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(seed);
    Rng rng(seed);
    const model::ModelSpec spec = RandomSpec(rng);
    const model::UnitLimits limits = RandomLimits(rng);
    const comm::MeshShape mesh = RandomMesh(rng);
    std::vector<int> sizes(Draw(rng, 1, 6));
    for (int& size : sizes) size = Draw(rng, 1, 4);
    const absl::StatusOr<FleetPlan> fleet = Plan(spec, limits, mesh, sizes);
    ASSERT_THAT(fleet.status(), IsOk());

    std::vector<std::vector<Memory>> expected, replicas;
    for (const int size : sizes) {
      expected.push_back(RolloutMemory(spec, size));
      replicas.push_back(Empty(expected.back()));
    }
    FeedAll(*fleet, TrainerMemory(spec, limits, mesh), replicas);

    ASSERT_EQ(replicas, expected);
  }
}

TEST(FleetPlan, EveryByteLeavesTheTrainerOnceHoweverManyRanksWantIt) {
  // As a large model over many ranks: a slice is not much larger than the norms in it, and the same
  // rank has those of every layer.
  model::ModelSpec spec;
  spec.hidden_size = 128;
  spec.vocab_size = 1024;
  model::LayerSpec layer;
  layer.attention.num_heads = layer.attention.num_kv_heads = 8;
  layer.attention.head_dim = 16;
  layer.feed_forward.intermediate_size = 256;
  spec.layers.assign(12, layer);
  const ModelLayout layout = *LayoutOf(spec, {}, 1);
  const FleetPlan fleet = *Plan(spec, {}, {.dp_shard = 64}, {8, 8});
  EXPECT_EQ(fleet.feed->total_bytes(), layout.elements() * static_cast<int64_t>(sizeof(Value)));
  // The granularity: what units of n elements leave of the last slice.
  EXPECT_LE(BalanceOf(*fleet.feed).max_over_mean, 1.02);
  // Seven of eight ranks get each norm from the others, in even parts.
  const ReshardPlan& exchange = *fleet.exchanges.at(8);
  EXPECT_EQ(exchange.total_bytes(), 7 * 25 * 128 * static_cast<int64_t>(sizeof(Value)));
  EXPECT_EQ(BalanceOf(exchange).max_over_mean, 1);
}

TEST(FleetPlan, NoGroupSpansTheFleetAndARankIsInTwoAtMost) {
  Rng rng(1);
  const FleetPlan fleet = *Plan(RandomSpec(rng), {}, {.dp_shard = 2, .tp = 2}, {2, 4, 2, 2, 4});
  EXPECT_EQ(fleet.num_ranks(), 4 + 14);
  EXPECT_THAT(fleet.chain, ElementsAre(1, 4, 0, 2, 3));
  const std::vector<std::vector<int>> groups = fleet.Groups();
  ASSERT_EQ(groups.size(), 5);
  EXPECT_THAT(groups[0], ElementsAre(0, 1, 2, 3, 6, 7, 8, 9));
  EXPECT_THAT(groups[1], ElementsAre(6, 7, 8, 9, 14, 15, 16, 17));
  EXPECT_THAT(groups[2], ElementsAre(14, 15, 16, 17, 4, 5));
  EXPECT_THAT(groups[3], ElementsAre(4, 5, 10, 11));
  EXPECT_THAT(groups[4], ElementsAre(10, 11, 12, 13));
  std::multiset<int> members;
  for (const std::vector<int>& group : groups) members.insert(group.begin(), group.end());
  for (int rank = 0; rank < fleet.num_ranks(); ++rank) EXPECT_LE(members.count(rank), 2);
  // Only where the sizes change is there a plan of its own.
  EXPECT_EQ(fleet.links[0].plan, nullptr);
  EXPECT_NE(fleet.links[1].plan, nullptr);
  EXPECT_EQ(fleet.links[2].plan, nullptr);
}

TEST(FleetPlan, AReplicaWithoutALayoutIsRefused) {
  Rng rng(2);
  const Holdings trainer = TrainerHoldings(*LayoutOf(RandomSpec(rng), {}, 1), {});
  EXPECT_THAT(MakeFleetPlan(trainer, {}, {2}, {}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("has 2 ranks")));
  EXPECT_THAT(MakeFleetPlan(trainer, {}, {}, {}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("no replica")));
}

}  // namespace
}  // namespace tandem::weights
