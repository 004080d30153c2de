#include "common/model/rotary_tables.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "common/model/rotary_frequencies.h"

namespace tandem::model {
namespace {

ModelSpec SpecWith(std::vector<int64_t> sections, bool alternate) {
  ModelSpec spec;
  LayerSpec layer;
  layer.attention.num_heads = layer.attention.num_kv_heads = 1;
  for (const int64_t size : sections) layer.attention.head_dim += 2 * size;
  spec.layers.assign(1, layer);
  spec.ropes[0].sections = std::move(sections);
  spec.ropes[0].sections_alternate = alternate;
  return spec;
}

// Expects that pair i of a head turns by axis axes[i].
void ExpectAxes(const ModelSpec& spec, const std::vector<int64_t>& axes) {
  const std::vector<float> inverse =
      FrequenciesOf(spec.ropes[0], spec.layers[0].attention.head_dim, 0).inverse;
  ASSERT_EQ(inverse.size(), axes.size());
  const at::Tensor positions =
      at::tensor({5, 6, 7, 21, 23, 22, 300, 100, 200}, at::kLong).view({3, 3});

  const Rotary rotary = RotaryTables(spec).Make(positions, {});

  for (int64_t token = 0; token < 3; ++token) {
    for (size_t pair = 0; pair < axes.size(); ++pair) {
      const auto at = positions[axes[pair]][token].item<float>();
      const auto i = static_cast<int64_t>(pair);
      EXPECT_EQ(rotary.ropes[0].cos[token][i].item<float>(), std::cos(at * inverse[pair])) << pair;
      EXPECT_EQ(rotary.ropes[0].sin[token][i].item<float>(), std::sin(at * inverse[pair])) << pair;
    }
  }
}

TEST(RotaryTables, SectionsFollowEachOther) {
  ExpectAxes(SpecWith({1, 2, 3}, false), {0, 1, 1, 2, 2, 2});
}

TEST(RotaryTables, SectionsTakeTurnsAndTheRestIsTimes) {
  ExpectAxes(SpecWith({4, 2, 2}, true), {0, 1, 2, 0, 1, 2, 0, 0});
  ExpectAxes(SpecWith({3, 2, 1}, true), {0, 1, 2, 0, 1, 0});
  ExpectAxes(SpecWith({11, 11, 10}, true), {0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2, 0,
                                            1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1});
}

TEST(RotaryTables, ThreeEqualPositionsAreOne) {
  const at::Tensor positions = at::arange(9, at::kLong);
  for (const bool alternate : {false, true}) {
    const RotaryTables tables(SpecWith({4, 2, 2}, alternate));
    const Rotary one = tables.Make(positions, {});
    const Rotary three = tables.Make(positions.expand({3, 9}).contiguous(), {});
    EXPECT_TRUE(at::equal(one.ropes[0].cos, three.ropes[0].cos));
    EXPECT_TRUE(at::equal(one.ropes[0].sin, three.ropes[0].sin));
  }
}

}  // namespace
}  // namespace tandem::model
