#include "common/rank_setup/unit_limits.h"

#include <gtest/gtest.h>

namespace tandem::setup {
namespace {

model::ModelSpec Spec(int64_t hidden) {
  model::ModelSpec spec;
  spec.vocab_size = 4096;
  spec.hidden_size = hidden;
  model::LayerSpec layer;
  layer.feed_forward.intermediate_size = 4 * hidden;
  layer.attention.num_heads = layer.attention.num_kv_heads = 8;
  layer.attention.head_dim = hidden / 8;
  spec.layers.assign(8, layer);
  return spec;
}

int64_t NumUnits(const model::ModelSpec& spec, const comm::MeshShape& mesh,
                 const config::v1::TrainerConfig& trainer) {
  return static_cast<int64_t>(
      model::ParameterTable(spec, UnitLimitsOf(trainer, spec, mesh, 4)).units().size());
}

TEST(UnitLimits, GroupTheLayersOfASmallModelButNotAllOfThem) {
  const model::ModelSpec spec = Spec(64);
  const int64_t units = NumUnits(spec, {.dp_shard = 8}, {});
  EXPECT_GT(units, 2);
  EXPECT_LT(units, spec.num_layers() + 2);
}

TEST(UnitLimits, LeaveTheLayersOfALargeModelAlone) {
  const model::ModelSpec spec = Spec(1024);
  EXPECT_EQ(NumUnits(spec, {.dp_shard = 2}, {}), spec.num_layers() + 2);
  // Shards of a layer would be small on so many ranks.
  EXPECT_LT(NumUnits(spec, {.dp_shard = 64}, {}), spec.num_layers() + 2);
}

TEST(UnitLimits, AreWhatIsStated) {
  config::v1::TrainerConfig trainer;
  trainer.set_min_unit_bytes(1);
  const model::ModelSpec spec = Spec(64);
  EXPECT_EQ(NumUnits(spec, {.dp_shard = 8}, trainer), spec.num_layers() + 2);
  trainer.set_min_unit_bytes(0);
  trainer.set_max_unit_bytes(4096);
  const model::ParameterTable table(spec, UnitLimitsOf(trainer, spec, {}, 4));
  for (const model::Unit& unit : table.units()) {
    EXPECT_TRUE(unit.parameters.size() == 1 || unit.numel <= 1024) << unit.name;
  }
}

}  // namespace
}  // namespace tandem::setup
