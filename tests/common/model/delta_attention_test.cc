// Linear attention by the gated delta rule, and the gate on attention's results, against plain ATen in
// float64.
#include "common/model/delta_attention.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <functional>
#include <string>
#include <vector>

#include "common/model/arena.h"
#include "common/model/output_gate.h"
#include "common/model/random_init.h"
#include "tests/support/on_simd_target.h"

namespace tandem::model {
namespace {

using Tensors = std::vector<at::Tensor>;

struct Case {
  std::string name;
  DeltaSpec spec;
  std::vector<int64_t> lengths;
};

std::vector<Case> Cases() {
  const auto spec = [](int64_t key_heads, int64_t value_heads, int64_t key_dim, int64_t value_dim,
                       int64_t kernel_size) {
    return DeltaSpec{.num_key_heads = key_heads,
                     .num_value_heads = value_heads,
                     .key_dim = key_dim,
                     .value_dim = value_dim,
                     .kernel_size = kernel_size};
  };
  return {
      // Several of the backward pass' chunks; sequences without tokens, and shorter than the kernel.
      {"Groups", spec(2, 4, 16, 16, 4), {1, 70, 0, 2, 33}},
      {"NoWholeRegister", spec(1, 3, 10, 5, 3), {40, 3}},
      {"WideValues", spec(2, 2, 24, 80, 4), {65, 32}},
      {"KernelOfOne", spec(3, 3, 8, 24, 1), {5, 40}},
      {"KernelLongerThanSequences", spec(1, 2, 12, 36, 9), {4, 7, 1}},
  };
}

// projected, convolution, a_log, dt_bias, norm.
Tensors InputsOf(const Case& c, at::ScalarType type) {
  const DeltaSpec& spec = c.spec;
  int64_t tokens = 0;
  for (const int64_t length : c.lengths) tokens += length;
  return {at::randn({tokens, spec.projected_size()}).to(type),
          at::randn({spec.convolved_size(), 1, spec.kernel_size}).mul(0.6).to(type),
          at::randn({spec.num_value_heads}).mul(0.7).to(type),
          at::randn({spec.num_value_heads}).to(type),
          at::randn({spec.value_dim}).mul(0.3).add(1.0).to(type)};
}

at::Tensor Ends(const std::vector<int64_t>& lengths) {
  std::vector<int64_t> ends = {0};
  for (const int64_t length : lengths) ends.push_back(ends.back() + length);
  return at::tensor(ends, at::kLong);
}

// What `compute` gives for the inputs in `type`, then the gradients of a sum with fixed weights.
Tensors Results(const Tensors& inputs, at::ScalarType type,
                const std::function<at::Tensor(const Tensors&)>& compute) {
  const at::AutoGradMode grad(true);
  Tensors leaves;
  for (const at::Tensor& x : inputs) {
    leaves.push_back(x.to(type).detach().clone().requires_grad_(true));
  }
  const at::Tensor out = compute(leaves);
  const at::Tensor weights = at::sin(at::arange(out.numel(), at::kDouble)).view(out.sizes());
  const at::Tensor loss = (out.to(at::kDouble) * weights).sum();
  Tensors results = {out.detach()};
  for (const at::Tensor& gradient : torch::autograd::grad({loss}, leaves)) {
    results.push_back(gradient);
  }
  return results;
}

void ExpectClose(const Tensors& found, const Tensors& expected, double tolerance) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    ASSERT_EQ(found[i].sizes(), expected[i].sizes()) << "result " << i;
    const at::Tensor difference = (expected[i] - found[i].to(at::kDouble)).abs();
    EXPECT_LT(difference.max().item<double>(),
              tolerance * (1 + expected[i].abs().max().item<double>()))
        << "result " << i;
  }
}

at::Tensor ComputeOf(const Case& c, const Tensors& in) {
  return DeltaAttention(c.spec, {in[0], in[1], in[2], in[3], in[4]}, Ends(c.lengths));
}

at::Tensor ReferenceOf(const Case& c, const Tensors& in) {
  return eager::DeltaAttention(c.spec, {in[0], in[1], in[2], in[3], in[4]}, Ends(c.lengths));
}

class DeltaAttentionTest : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override { at::manual_seed(7); }

  static at::Tensor Compute(const Tensors& in) { return ComputeOf(GetParam(), in); }
  static at::Tensor Reference(const Tensors& in) { return ReferenceOf(GetParam(), in); }
};

TEST_P(DeltaAttentionTest, AgreesWithAtenAndItsGradients) {
  const Tensors inputs = InputsOf(GetParam(), at::kDouble);
  ExpectClose(Results(inputs, at::kFloat, Compute), Results(inputs, at::kDouble, Reference), 3e-6);
}

TEST_P(DeltaAttentionTest, AgreesInBfloat16) {
  const Tensors inputs = InputsOf(GetParam(), at::kBFloat16);
  ExpectClose(Results(inputs, at::kBFloat16, Compute), Results(inputs, at::kDouble, Reference),
              1e-2);
}

TEST_P(DeltaAttentionTest, HasTheSameBitsWithAndWithoutGradientsAndForAnyNumberOfThreads) {
  const Tensors inputs = InputsOf(GetParam(), at::kFloat);
  at::set_num_threads(1);
  const Tensors alone = Results(inputs, at::kFloat, Compute);
  at::set_num_threads(2);
  const Tensors together = Results(inputs, at::kFloat, Compute);
  for (size_t i = 0; i < alone.size(); ++i) EXPECT_TRUE(at::equal(alone[i], together[i])) << i;
  const at::NoGradGuard no_grad;
  EXPECT_TRUE(at::equal(Compute(inputs), alone[0]));
}

INSTANTIATE_TEST_SUITE_P(Shapes, DeltaAttentionTest, ::testing::ValuesIn(Cases()),
                         [](const auto& info) { return info.param.name; });

class DeltaOnSimdTarget : public tandem::testing::OnSimdTarget {};

TEST_P(DeltaOnSimdTarget, AgreesWithAtenAndItsGradients) {
  at::manual_seed(9);
  for (const Case& c : Cases()) {
    SCOPED_TRACE(c.name);
    const Tensors inputs = InputsOf(c, at::kDouble);
    ExpectClose(Results(inputs, at::kFloat, [&](const Tensors& in) { return ComputeOf(c, in); }),
                Results(inputs, at::kDouble, [&](const Tensors& in) { return ReferenceOf(c, in); }),
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
    ExpectClose(Results(inputs, type, compute), Results(inputs, at::kDouble, compute),
                type == at::kFloat ? 1e-6 : 1e-2);
  }
}

}  // namespace
}  // namespace tandem::model
