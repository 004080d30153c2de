#include "common/weights/relay_plan.h"

#include "common/weights/reshard_check.h"
#include "tests/common/weights/plan_fixtures.h"
#include "tests/support/status_matchers.h"

namespace tandem::weights {
namespace {

using namespace testing;  // NOLINT: the fixtures
using ::tandem::testing::IsOk;
using ::tandem::testing::StatusIs;
using ::testing::HasSubstr;

void Carry(const Message& message, const std::vector<Memory>& from, std::vector<Memory>& to) {
  std::vector<Value> bucket;
  Pack(message, from[message.from], bucket);
  EXPECT_EQ(bucket.size() * sizeof(Value), message.size_bytes);
  Unpack(message, bucket, to[message.to]);
}

// Replicas of different sizes along a chain, the first of which the trainer feeds.
struct Chain {
  std::vector<int> sizes;
  std::vector<ModelLayout> layouts;
  ReshardPlan feed;
  std::vector<RelayPlan> relays;

  const ReshardPlan& PlanTo(size_t i) const { return i == 0 ? feed : relays[i - 1].hop; }
};

absl::StatusOr<Chain> MakeChain(const model::ModelSpec& spec, const Holdings& trainer,
                                std::vector<int> sizes, int64_t bucket_bytes) {
  Chain chain;
  chain.sizes = std::move(sizes);
  for (const int size : chain.sizes) chain.layouts.push_back(*LayoutOf(spec, {}, size));
  auto feed =
      MakeReshardPlan(trainer, RolloutHoldings(chain.layouts[0]), {kElementBytes, bucket_bytes});
  if (!feed.ok()) return feed.status();
  chain.feed = *std::move(feed);
  for (size_t i = 1; i < chain.sizes.size(); ++i) {
    auto relay = MakeRelayPlan(chain.PlanTo(i - 1), chain.layouts[i - 1], chain.layouts[i]);
    if (!relay.ok()) return relay.status();
    chain.relays.push_back(*std::move(relay));
  }
  return chain;
}

// Carries out message by message of the feed, each passed on along the chain as soon as it is
// there: what is passed on before it has arrived shows.
void CarryOutChain(const Chain& chain, const std::vector<Memory>& trainer,
                   std::vector<std::vector<Memory>>& replicas) {
  std::vector<std::vector<int>> arrived;
  std::vector<size_t> next(chain.relays.size(), 0);
  for (const int size : chain.sizes) arrived.emplace_back(size, 0);
  for (const Message& message : chain.feed.messages) {
    Carry(message, trainer, replicas[0]);
    ++arrived[0][message.to];
    for (size_t hop = 0; hop < chain.relays.size(); ++hop) {
      const RelayPlan& relay = chain.relays[hop];
      // In the one order of all ranks: never past a message that is still to come.
      for (; next[hop] < relay.hop.messages.size(); ++next[hop]) {
        const Message& part = relay.hop.messages[next[hop]];
        if (relay.after[next[hop]] >= arrived[hop][part.from]) break;
        Carry(part, replicas[hop], replicas[hop + 1]);
        ++arrived[hop + 1][part.to];
      }
    }
  }
  for (size_t hop = 0; hop < chain.relays.size(); ++hop) {
    EXPECT_EQ(next[hop], chain.relays[hop].hop.messages.size()) << "hop " << hop;
  }
}

TEST(RelayPlan, GivesEveryReplicaOfAMixItsBoxesAsTheBucketsArrive) {
  const std::vector<std::vector<int>> mixes = {{2, 1}, {4, 2, 1}, {3, 2}, {4, 3, 2, 1}, {4, 1}};
  for (uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    Rng rng(seed);
    const model::ModelSpec spec = RandomSpec(rng);
    const model::UnitLimits limits = RandomLimits(rng);
    const comm::MeshShape mesh = RandomMesh(rng);
    const auto chain = MakeChain(spec, TrainerHoldings(*LayoutOf(spec, limits, mesh.tp), mesh),
                                 mixes[seed % mixes.size()], kElementBytes * Draw(rng, 1, 300));
    ASSERT_THAT(chain.status(), IsOk());

    std::vector<std::vector<Memory>> expected, received;
    for (const int size : chain->sizes) {
      expected.push_back(RolloutMemory(spec, size));
      received.push_back(Empty(expected.back()));
    }
    CarryOutChain(*chain, TrainerMemory(spec, limits, mesh), received);

    ASSERT_EQ(received, expected);
    for (size_t i = 1; i < chain->sizes.size(); ++i) {
      EXPECT_THAT(CheckCoverage(chain->PlanTo(i), RolloutHoldings(chain->layouts[i - 1]),
                                RolloutHoldings(chain->layouts[i])),
                  IsOk());
    }
  }
}

TEST(RelayPlan, EveryRankOfAnEvenlySplitReplicaPassesOnAsMuch) {
  model::ModelSpec spec;
  spec.hidden_size = 128;
  spec.vocab_size = 512;
  model::LayerSpec layer;
  layer.attention.num_kv_heads = 4;
  layer.attention.num_heads = 8;
  layer.attention.head_dim = 16;
  layer.feed_forward.intermediate_size = 256;
  spec.layers.assign(4, layer);
  const comm::MeshShape mesh{.dp_shard = 4};
  ASSERT_OK_AND_ASSIGN(const Chain chain,
                       MakeChain(spec, TrainerHoldings(*LayoutOf(spec, {}, 1), mesh), {4, 2, 1},
                                 kElementBytes * 1000));
  const int64_t model_bytes = LayoutOf(spec, {}, 1)->elements() * kElementBytes;
  // Norms, which all ranks hold, come to each of them: the 2 %.
  for (const int64_t bytes : chain.feed.sent_bytes) EXPECT_LE(bytes, model_bytes / 4 * 1.02);
  for (const int64_t bytes : chain.relays[0].hop.sent_bytes) {
    EXPECT_LE(bytes, model_bytes / 4 * 1.02);
  }
  for (const int64_t bytes : chain.relays[1].hop.sent_bytes) {
    EXPECT_LE(bytes, model_bytes / 2 * 1.02);
  }
  EXPECT_EQ(chain.relays[1].hop.total_bytes(), model_bytes);
}

TEST(RelayPlan, RefusesAPlanThatFeedsOtherRanks) {
  Rng rng(3);
  const model::ModelSpec spec = RandomSpec(rng);
  const ModelLayout two = *LayoutOf(spec, {}, 2);
  ASSERT_OK_AND_ASSIGN(
      const ReshardPlan feed,
      MakeReshardPlan(TrainerHoldings(*LayoutOf(spec, {}, 1), {.dp_shard = 2}),
                      RolloutHoldings(*LayoutOf(spec, {}, 3)), {kElementBytes, 400}));
  EXPECT_THAT(MakeRelayPlan(feed, two, *LayoutOf(spec, {}, 1)).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("feeds 3 ranks")));
}

}  // namespace
}  // namespace tandem::weights
