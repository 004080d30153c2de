#include "common/rank_setup/mesh_shape.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/status_matchers.h"

namespace tandem::setup {
namespace {

using config::v1::TrainerConfig;
using ::testing::HasSubstr;

TrainerConfig Config(
    int64_t ranks, const std::vector<int64_t>& sizes = {},
    const std::vector<std::string>& names = {},
    config::v1::ShardingStrategy strategy = config::v1::SHARDING_STRATEGY_FULL_SHARD) {
  TrainerConfig out;
  out.set_ranks(ranks);
  for (const int64_t size : sizes) out.add_mesh_shape(size);
  for (const std::string& name : names) out.add_mesh_dim_names(name);
  out.set_sharding_strategy(strategy);
  out.set_ulysses_sequence_parallel_size(1);
  return out;
}

std::vector<int> Sizes(const absl::StatusOr<comm::MeshShape>& shape) {
  if (!shape.ok()) return {};
  return {shape->dp_replicate, shape->dp_shard, shape->tp, shape->sequence};
}

TEST(MeshShape, FollowsTheStrategy) {
  EXPECT_EQ(Sizes(MeshShapeOf(Config(6), 2)), (std::vector<int>{1, 6, 1, 1}));
  EXPECT_EQ(Sizes(MeshShapeOf(Config(6, {}, {}, config::v1::SHARDING_STRATEGY_NO_SHARD), 2)),
            (std::vector<int>{6, 1, 1, 1}));
  EXPECT_EQ(Sizes(MeshShapeOf(Config(6, {}, {}, config::v1::SHARDING_STRATEGY_HYBRID_SHARD), 2)),
            (std::vector<int>{3, 2, 1, 1}));
}

TEST(MeshShape, FollowsSizesAndNames) {
  EXPECT_EQ(Sizes(MeshShapeOf(Config(4, {2, 2}), 4)), (std::vector<int>{2, 2, 1, 1}));
  EXPECT_EQ(Sizes(MeshShapeOf(Config(4, {4}), 4)), (std::vector<int>{1, 4, 1, 1}));
  EXPECT_EQ(Sizes(MeshShapeOf(Config(4, {2, 2}, {"dp_shard", "tp"}), 4)),
            (std::vector<int>{1, 2, 2, 1}));
  EXPECT_EQ(Sizes(MeshShapeOf(Config(8, {2, 2, 2}, {"dp_replicate", "dp_shard", "tp"}), 8)),
            (std::vector<int>{2, 2, 2, 1}));
  TrainerConfig sequence = Config(4);
  sequence.set_ulysses_sequence_parallel_size(2);
  EXPECT_EQ(Sizes(MeshShapeOf(sequence, 4)), (std::vector<int>{1, 4, 1, 2}));
}

TEST(MeshShape, ExpertsStandBetweenShardsAndTensors) {
  ASSERT_OK_AND_ASSIGN(const comm::MeshShape alone, MeshShapeOf(Config(2, {2}, {"ep"}), 2));
  EXPECT_EQ(alone.ep, 2);
  EXPECT_EQ(alone.num_shards(), 2);
  EXPECT_EQ(alone.num_data_ranks(), 2);
  ASSERT_OK_AND_ASSIGN(
      const comm::MeshShape all,
      MeshShapeOf(Config(24, {2, 3, 2, 2}, {"dp_replicate", "dp_shard", "ep", "tp"}), 8));
  EXPECT_EQ(Sizes(all), (std::vector<int>{2, 3, 2, 1}));
  EXPECT_EQ(all.ep, 2);
  EXPECT_EQ(all.num_data_ranks(), 12);
}

TEST(MeshShape, NamesTheKeyThatDoesNotFit) {
  const auto refused = [](const TrainerConfig& config, const std::string& text) {
    EXPECT_THAT(MeshShapeOf(config, 2),
                testing::StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(text)));
  };
  refused(Config(4, {2, 3}),
          "trainer.mesh_shape: expected sizes whose product is trainer.ranks (4)");
  refused(Config(4, {2, 2}, {"dp_shard"}), "trainer.mesh_dim_names: expected a name for each");
  refused(Config(4, {2, 2}, {"tp", "dp_shard"}), "in this order");
  refused(Config(4, {2, 2}, {"rows", "columns"}),
          "expected some of dp_replicate, dp_shard, ep, tp");
  refused(Config(4, {2, 2}, {"tp", "tp"}), "each once");
  refused(Config(4, {2, 2}, {"tp", "ep"}), "in this order");
  refused(Config(2, {2}, {"ep"}, config::v1::SHARDING_STRATEGY_NO_SHARD), "no_shard replicates");
  refused(Config(3, {}, {}, config::v1::SHARDING_STRATEGY_HYBRID_SHARD), "not a multiple of the 2");
  refused(Config(4, {2, 2}, {}, config::v1::SHARDING_STRATEGY_NO_SHARD), "no_shard replicates");
  TrainerConfig sequence = Config(4);
  sequence.set_ulysses_sequence_parallel_size(3);
  refused(sequence, "trainer.ulysses_sequence_parallel_size: expected a divisor of the 4");
}

}  // namespace
}  // namespace tandem::setup
