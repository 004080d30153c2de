// Linear attention by the gated delta rule, and the gate on attention's results, against plain ATen in
// float64.
#include "common/model/delta_attention.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <vector>

#include "common/model/arena.h"
#include "common/model/output_gate.h"
#include "common/model/random_init.h"
#include "tests/common/model/delta_cases.h"
#include "tests/support/on_simd_target.h"

namespace tandem::model {
namespace {

using Tensors = DeltaTensorList;
using Case = DeltaCase;

at::Tensor ComputeOf(const Case& c, const Tensors& in) {
  return DeltaAttention(c.spec, TensorsOf(in), EndsOf(c.lengths));
}

at::Tensor ReferenceOf(const Case& c, const Tensors& in) {
  return eager::DeltaAttention(c.spec, TensorsOf(in), EndsOf(c.lengths));
}

class DeltaAttentionTest : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override { at::manual_seed(7); }

  static at::Tensor Compute(const Tensors& in) { return ComputeOf(GetParam(), in); }
  static at::Tensor Reference(const Tensors& in) { return ReferenceOf(GetParam(), in); }
};

TEST_P(DeltaAttentionTest, AgreesWithAtenAndItsGradients) {
  const Tensors inputs = DeltaInputsOf(GetParam(), at::kDouble);
  ExpectDeltaClose(DeltaResults(inputs, at::kFloat, Compute),
                   DeltaResults(inputs, at::kDouble, Reference), 3e-6);
}

TEST_P(DeltaAttentionTest, AgreesInBfloat16) {
  const Tensors inputs = DeltaInputsOf(GetParam(), at::kBFloat16);
  ExpectDeltaClose(DeltaResults(inputs, at::kBFloat16, Compute),
                   DeltaResults(inputs, at::kDouble, Reference), 1e-2);
}

TEST_P(DeltaAttentionTest, HasTheSameBitsWithAndWithoutGradientsAndForAnyNumberOfThreads) {
  const Tensors inputs = DeltaInputsOf(GetParam(), at::kFloat);
  at::set_num_threads(1);
  const Tensors alone = DeltaResults(inputs, at::kFloat, Compute);
  at::set_num_threads(2);
  const Tensors together = DeltaResults(inputs, at::kFloat, Compute);
  for (size_t i = 0; i < alone.size(); ++i) EXPECT_TRUE(at::equal(alone[i], together[i])) << i;
  const at::NoGradGuard no_grad;
  EXPECT_TRUE(at::equal(Compute(inputs), alone[0]));
}

INSTANTIATE_TEST_SUITE_P(Shapes, DeltaAttentionTest, ::testing::ValuesIn(DeltaCases()),
                         [](const auto& info) { return info.param.name; });

class DeltaOnSimdTarget : public tandem::testing::OnSimdTarget {};

TEST_P(DeltaOnSimdTarget, AgreesWithAtenAndItsGradients) {
  at::manual_seed(9);
  for (const Case& c : DeltaCases()) {
    SCOPED_TRACE(c.name);
    const Tensors inputs = DeltaInputsOf(c, at::kDouble);
    ExpectDeltaClose(
        DeltaResults(inputs, at::kFloat, [&](const Tensors& in) { return ComputeOf(c, in); }),
        DeltaResults(inputs, at::kDouble, [&](const Tensors& in) { return ReferenceOf(c, in); }),
        3e-6);
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, DeltaOnSimdTarget, tandem::testing::SimdTargets(),
                         tandem::testing::SimdTargetName);

TEST(DeltaParameters, BeginAsTheFamiliesDo) {
  ModelSpec spec;
  spec.vocab_size = 20;
  spec.hidden_size = 32;
  LayerSpec layer;
  layer.feed_forward.intermediate_size = 16;
  layer.attention = {.num_heads = 2, .num_kv_heads = 2, .head_dim = 8};
  layer.attention.delta = DeltaSpec{
      .num_key_heads = 32, .num_value_heads = 64, .key_dim = 4, .value_dim = 6, .kernel_size = 4};
  spec.layers.push_back(layer);
  const ParameterTable table(spec);
  Arena arena(table, at::kFloat);
  RandomInit(spec, /*seed=*/5, arena);
  const DeltaParameters& at = table.layer(0).attention.delta;
  // Rates of decay from 0.01 to 16, drawn evenly.
  const at::Tensor rates = arena.Get(at.a_log).exp();
  EXPECT_GT(rates.min().item<float>(), 0.009f);
  EXPECT_LT(rates.max().item<float>(), 16.01f);
  EXPECT_NEAR(rates.mean().item<float>(), 8.0f, 2.0f);
  EXPECT_TRUE((arena.Get(at.dt_bias) == 1).all().item<bool>());
  EXPECT_TRUE((arena.Get(at.norm.weight) == 1).all().item<bool>());
  const at::Tensor& convolution = arena.Get(at.convolution_weight);
  EXPECT_EQ(convolution.sizes(), (std::vector<int64_t>{2 * 128 + 384, 1, 4}));
  EXPECT_NEAR(convolution.std().item<float>(), spec.initializer_range, 0.002);

  // The part of a rank is that of the whole model.
  const ParameterTable second(spec, {}, {1, 2});
  Arena part(second, at::kFloat);
  RandomInit(spec, /*seed=*/5, part);
  EXPECT_TRUE(at::equal(part.Get(second.layer(0).attention.delta.a_log),
                        arena.Get(at.a_log).narrow(0, 32, 32)));
}

TEST(OutputGate, AgreesWithAtenAndItsGradients) {
  at::manual_seed(8);
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    const Tensors inputs = {at::randn({19, 37}).to(type), at::randn({19, 37}).mul(4).to(type)};
    const auto compute = [](const Tensors& in) { return GateBySigmoid(in[0], in[1]); };
    ExpectDeltaClose(DeltaResults(inputs, type, compute),
                     DeltaResults(inputs, at::kDouble, compute), type == at::kFloat ? 1e-6 : 1e-2);
  }
}

}  // namespace
}  // namespace tandem::model
