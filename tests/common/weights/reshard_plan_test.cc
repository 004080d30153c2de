#include "common/weights/reshard_plan.h"

#include <utility>

#include "common/weights/reshard_check.h"
#include "tests/common/weights/plan_fixtures.h"
#include "tests/support/status_matchers.h"

namespace tandem::weights {
namespace {

using namespace testing;  // NOLINT: the fixtures
using ::tandem::testing::IsOk;
using ::tandem::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

struct Case {
  model::ModelSpec spec;
  model::UnitLimits limits;
  comm::MeshShape mesh;
  int rollout_tp = 1;
  int64_t bucket_bytes = 0;

  Holdings Trainer() const {
    return TrainerHoldings(*LayoutOf(spec, limits, mesh.tp, mesh.ep), mesh);
  }
  Holdings Rollout() const { return RolloutHoldings(*LayoutOf(spec, {}, rollout_tp)); }
  absl::StatusOr<ReshardPlan> Plan() const {
    return MakeReshardPlan(Trainer(), Rollout(), {kElementBytes, bucket_bytes});
  }
};

Case RandomCase(uint64_t seed) {
  Rng rng(seed);
  return {RandomSpec(rng), RandomLimits(rng), RandomMesh(rng), Draw(rng, 1, 4),
          kElementBytes * Draw(rng, 1, 700)};
}

// A trainer whose ranks split experts.
Case RandomExpertCase(uint64_t seed) {
  Case c = RandomCase(seed);
  Rng rng(seed + 1000);
  c.mesh.ep = Draw(rng, 2, 3);
  for (model::LayerSpec& layer : c.spec.layers) {
    layer.experts = {.num_experts = c.mesh.ep * Draw(rng, 1, 3),
                     .intermediate_size = Draw(rng, 4, 9),
                     .routing = {.top_k = 1},
                     .bias = Draw(rng, 0, 1) == 1,
                     .shared_intermediate_size = Draw(rng, 0, 1) * 5};
  }
  return c;
}

bool SamePlan(const ReshardPlan& a, const ReshardPlan& b) {
  if (a.messages.size() != b.messages.size()) return false;
  for (size_t i = 0; i < a.messages.size(); ++i) {
    const Message& x = a.messages[i];
    const Message& y = b.messages[i];
    if (x.from != y.from || x.to != y.to || x.pieces.size() != y.pieces.size()) return false;
    for (size_t p = 0; p < x.pieces.size(); ++p) {
      if (!(x.pieces[p].piece == y.pieces[p].piece)) return false;
    }
  }
  return true;
}

TEST(ReshardPlan, CarriedOutGivesEveryReceiverItsBoxes) {
  for (uint64_t seed = 0; seed < 500; ++seed) {
    SCOPED_TRACE(seed);
    const Case c = seed < 400 ? RandomCase(seed) : RandomExpertCase(seed);
    const absl::StatusOr<ReshardPlan> plan = c.Plan();
    ASSERT_THAT(plan.status(), IsOk());

    const std::vector<Memory> expected = RolloutMemory(c.spec, c.rollout_tp);
    std::vector<Memory> received = Empty(expected);
    CarryOut(*plan, TrainerMemory(c.spec, c.limits, c.mesh), received);

    ASSERT_EQ(received, expected);
    EXPECT_THAT(CheckCoverage(*plan, c.Trainer(), c.Rollout()), IsOk());
  }
}

TEST(ReshardPlan, GoesFromReplicaToReplicaToo) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(seed);
    Rng rng(seed);
    const model::ModelSpec spec = RandomSpec(rng);
    const int from = Draw(rng, 1, 4);
    const int to = Draw(rng, 1, 4);
    const absl::StatusOr<ReshardPlan> plan =
        MakeReshardPlan(RolloutHoldings(*LayoutOf(spec, {}, from)),
                        RolloutHoldings(*LayoutOf(spec, {}, to)), {kElementBytes, 400});
    ASSERT_THAT(plan.status(), IsOk());

    const std::vector<Memory> expected = RolloutMemory(spec, to);
    std::vector<Memory> received = Empty(expected);
    CarryOut(*plan, RolloutMemory(spec, from), received);

    ASSERT_EQ(received, expected);
  }
}

TEST(ReshardPlan, IsTheSameWhoeverMakesIt) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const Case c = RandomCase(seed);
    ASSERT_TRUE(SamePlan(*c.Plan(), *c.Plan())) << seed;
  }
}

// What only one rank holds, it sends: shards that end in padding and uneven tensor-parallel parts
// make these unequal, by up to an element of each unit for the former. A model whose parts are even
// and whose units fill their shards is balanced but for what rollout ranks take several times
// (norms), of which the copies of a shard's holders are shared out.
TEST(ReshardPlan, CopiesShareTheWorkEvenly) {
  model::ModelSpec spec;
  spec.hidden_size = 48;
  spec.vocab_size = 480;
  model::LayerSpec layer;
  layer.attention.num_heads = layer.attention.num_kv_heads = 12;
  layer.attention.head_dim = 4;
  layer.feed_forward.intermediate_size = 96;
  spec.layers.assign(4, layer);
  for (const comm::MeshShape mesh :
       {comm::MeshShape{3, 1, 1}, comm::MeshShape{3, 2, 1}, comm::MeshShape{2, 2, 2},
        comm::MeshShape{1, 4, 3}, comm::MeshShape{3, 4, 2}}) {
    for (const int tp : {1, 2, 3, 4}) {
      SCOPED_TRACE(::testing::Message()
                   << mesh.dp_replicate << "x" << mesh.dp_shard << "x" << mesh.tp << " to " << tp);
      const Case c{spec, {}, mesh, tp, 4096};
      const absl::StatusOr<ReshardPlan> plan = c.Plan();
      ASSERT_THAT(plan.status(), IsOk());
      EXPECT_LE(BalanceOf(*plan).max_over_mean, 1.02);
    }
  }
}

TEST(ReshardPlan, SendersAreBusyTogetherAndReceiversAlternateAmongThem) {
  model::ModelSpec spec;
  spec.hidden_size = 64;
  spec.vocab_size = 512;
  model::LayerSpec layer;
  layer.attention.num_heads = layer.attention.num_kv_heads = 8;
  layer.attention.head_dim = 8;
  layer.feed_forward.intermediate_size = 256;
  spec.layers.assign(8, layer);
  const Case c{spec, {}, {.dp_shard = 4}, 2, 4096};
  const ReshardPlan plan = *c.Plan();

  // After any number of messages no sender is ahead of another by more than three buckets.
  std::vector<int64_t> sent(plan.num_senders());
  std::vector<int> last(plan.num_receivers(), -1);
  int64_t repeats = 0;
  for (const Message& message : plan.messages) {
    sent[message.from] += message.size_bytes;
    const auto [least, most] = std::minmax_element(sent.begin(), sent.end());
    EXPECT_LE(*most - *least, 3 * plan.bucket_bytes);
    repeats += last[message.to] == message.from ? 1 : 0;
    last[message.to] = message.from;
  }
  EXPECT_LT(repeats, static_cast<int64_t>(plan.messages.size()) / 10);
}

TEST(ReshardPlan, CoversExperts) {
  model::ModelSpec spec;
  spec.hidden_size = 7;
  spec.vocab_size = 12;
  model::LayerSpec layer;
  layer.attention.num_heads = layer.attention.num_kv_heads = 4;
  layer.attention.head_dim = 3;
  layer.experts = {.num_experts = 6,
                   .intermediate_size = 5,
                   .routing = {.top_k = 2},
                   .shared_intermediate_size = 9};
  spec.layers.assign(2, layer);
  const comm::MeshShape mesh{.dp_replicate = 2, .dp_shard = 3, .tp = 2};
  const Holdings from = TrainerHoldings(*LayoutOf(spec, {}, 2), mesh);
  const Holdings to = RolloutHoldings(*LayoutOf(spec, {}, 4));

  const absl::StatusOr<ReshardPlan> plan = MakeReshardPlan(from, to, {2, 64});

  ASSERT_THAT(plan.status(), IsOk());
  EXPECT_THAT(CheckCoverage(*plan, from, to), IsOk());
}

TEST(ReshardPlan, WhatNobodyHoldsIsNamed) {
  const Case c = RandomCase(3);
  Holdings from = c.Trainer();
  for (auto& rank : from.ranks) {
    std::erase_if(rank, [](const Holding& holding) { return holding.piece.tensor == 1; });
  }
  EXPECT_THAT(MakeReshardPlan(from, c.Rollout(), {}),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("of tensor 1;"), HasSubstr("have no sender"))));
  EXPECT_THAT(MakeReshardPlan(c.Trainer(), c.Rollout(), {4, 3}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("found 3")));
}

TEST(CheckCoverage, FindsWhatIsWrongWithAPlan) {
  const Case c = RandomCase(5);
  const ReshardPlan plan = *c.Plan();
  const auto check = [&](auto damage) {
    ReshardPlan damaged = plan;
    damage(damaged);
    return CheckCoverage(damaged, c.Trainer(), c.Rollout());
  };
  const auto refuses = [](const char* what) {
    return StatusIs(absl::StatusCode::kInternal, HasSubstr(what));
  };
  EXPECT_THAT(check([](ReshardPlan& p) { p.messages.pop_back(); }), refuses("never arrive"));
  EXPECT_THAT(check([](ReshardPlan& p) { p.messages.push_back(p.messages[0]); }),
              refuses("never arrive"));
  EXPECT_THAT(check([](ReshardPlan& p) { ++p.messages[0].pieces[0].from.offset; }),
              refuses("the sender does not hold these"));
  EXPECT_THAT(check([](ReshardPlan& p) { ++p.messages[0].pieces[0].to.offset; }),
              refuses("the receiver does not need these"));
  EXPECT_THAT(check([](ReshardPlan& p) { ++p.messages[0].size_bytes; }), refuses("its size is"));
}

}  // namespace
}  // namespace tandem::weights
