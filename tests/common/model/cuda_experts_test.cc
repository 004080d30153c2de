// The operations of experts on a GPU: routing, sums and grouped products, forward and backward, against
// those of the CPU in float64.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <string>
#include <vector>

#include "common/model/device_experts.h"
#include "common/model/expert_rows.h"
#include "common/model/grouped_linear.h"
#include "common/model/numerics.h"
#include "common/model/router.h"
#include "tests/common/model/routing_kinds.h"
#include "tests/support/cuda_device.h"

namespace tandem::model {
namespace {

const at::Device kGpu(at::kCUDA, 0);

class CudaRouting : public ::testing::TestWithParam<RoutingKind> {
 protected:
  void SetUp() override { TANDEM_SKIP_WITHOUT_CUDA(); }
};

TEST_P(CudaRouting, ChoosesAndWeighsLikeTheCpu) {
  at::manual_seed(3);
  for (const int64_t num_experts : {kExpertsOfKinds, 8 * kExpertsOfKinds}) {
    Router router{GetParam().spec, {}};
    if (router.spec.correction_bias) router.correction_bias = at::randn({num_experts}) * 0.3;
    Router there = router;
    if (there.correction_bias.defined()) there.correction_bias = router.correction_bias.to(kGpu);
    const at::Tensor logits = (at::randn({1000, num_experts}) * 2).requires_grad_();
    const at::Tensor of_gpu = logits.detach().to(kGpu).requires_grad_();
    const at::Tensor experts = ChooseExperts(logits, router);
    const at::Tensor found = ChooseExperts(of_gpu, there);
    // Scores that differ in their last bit may change places.
    const double same = found.cpu().eq(experts).all(1).to(at::kDouble).mean().item<double>();
    EXPECT_GE(same, 0.99);
    const at::Tensor factors = at::cos(at::arange(experts.numel())).view(experts.sizes());
    const at::Tensor expected = ExpertWeights(logits, experts, router);
    const at::Tensor weights = ExpertWeights(of_gpu, experts.to(kGpu), there);
    EXPECT_TRUE(at::allclose(weights.cpu(), expected, 1e-4, 1e-6));
    (expected * factors).sum().backward();
    (weights * factors.to(kGpu)).sum().backward();
    EXPECT_TRUE(at::allclose(of_gpu.grad().cpu(), logits.grad(), 1e-3, 1e-5));
    const ExpertRows rows = GroupByExpert(experts, num_experts);
    const ExpertRows rows_there = GroupByExpert(experts.to(kGpu), num_experts);
    EXPECT_TRUE(at::equal(rows_there.first.cpu(), rows.first));
    EXPECT_TRUE(at::equal(rows_there.tokens.cpu(), rows.tokens));
    EXPECT_TRUE(at::equal(rows_there.places.cpu(), rows.places));
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, CudaRouting, ::testing::ValuesIn(RoutingKinds()),
                         [](const ::testing::TestParamInfo<RoutingKind>& info) {
                           return info.param.name;
                         });

struct LayerCase {
  at::ScalarType type;
  Numerics numerics;
  bool has_biases;
  int64_t size;
};

class CudaExperts : public ::testing::TestWithParam<LayerCase> {
 protected:
  static constexpr int64_t kExperts = 9;  // the last one has no rows
  static constexpr int64_t kTokens = 333;

  void SetUp() override {
    TANDEM_SKIP_WITHOUT_CUDA();
    SetNumerics(GetParam().numerics);
  }
  void TearDown() override { SetNumerics(Numerics::kFast); }

  // The result, and gradients of everything. Weights lie in one tensor, equally far apart.
  static std::vector<at::Tensor> Pass(const at::Tensor& x, const at::Tensor& logits,
                                      const at::Tensor& weights, const at::Tensor& biases) {
    const at::Tensor in = x.detach().clone().requires_grad_();
    const at::Tensor scores = logits.detach().clone().requires_grad_();
    std::vector<at::Tensor> of_experts, of_biases;
    const at::Tensor room = weights.detach().clone();
    for (const at::Tensor& weight : room.unbind()) {
      of_experts.push_back(weight.detach().requires_grad_());
    }
    if (biases.defined()) {
      for (const at::Tensor& bias : biases.detach().clone().unbind()) {
        of_biases.push_back(bias.detach().requires_grad_());
      }
    }
    const Router router{{.top_k = 3, .normalize = true}, {}};
    const at::Tensor experts = ChooseExperts(scores, router);
    const ExpertRows rows = GroupByExpert(experts, kExperts);
    const at::Tensor results =
        GroupedLinear(DispatchRows(in, rows), rows, of_experts, of_biases,
                      std::vector<const kernels::PackedMatrix*>(kExperts, nullptr));
    const at::Tensor out = CombineRows(results, ExpertWeights(scores, experts, router), rows);
    const at::Tensor factors =
        at::cos(at::arange(out.numel(), at::device(out.device()).dtype(at::kDouble)));
    (out.to(at::kDouble) * factors.view(out.sizes())).sum().backward();
    std::vector<at::Tensor> all = {out.detach(), in.grad(), scores.grad()};
    for (const std::vector<at::Tensor>* leaves : {&of_experts, &of_biases}) {
      for (const at::Tensor& leaf : *leaves) {
        all.push_back(leaf.grad().defined() ? leaf.grad() : at::zeros_like(leaf));
      }
    }
    return all;
  }
};

TEST_P(CudaExperts, HaveTheValuesAndGradientsOfTheCpuInFloat64) {
  at::manual_seed(17);
  const auto& [type, numerics, has_biases, size] = GetParam();
  const at::Tensor x = at::randn({kTokens, size}).to(type);
  at::Tensor logits = at::randn({kTokens, kExperts});
  logits.select(1, kExperts - 1).fill_(-1e9);
  logits.select(1, 0).add_(2);  // more rows than a tile has
  const at::Tensor weights = (at::randn({kExperts, 2 * size, size}) * 0.1).to(type);
  const at::Tensor biases = has_biases ? at::randn({kExperts, 2 * size}).to(type) : at::Tensor();
  const auto wide = [](const at::Tensor& t) { return t.defined() ? t.to(at::kDouble) : t; };
  const auto there = [](const at::Tensor& t) { return t.defined() ? t.to(kGpu) : t; };
  const std::vector<at::Tensor> expected = Pass(wide(x), wide(logits), wide(weights), wide(biases));
  const std::vector<at::Tensor> found =
      Pass(there(x), there(logits), there(weights), there(biases));
  const double tolerance = type == at::kFloat ? 1e-4 : 3e-2;
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) {
    const at::Tensor difference = (found[i].to(at::kDouble).cpu() - expected[i]).abs();
    EXPECT_LE(difference.max().item<double>(),
              tolerance * (1 + expected[i].abs().max().item<double>()))
        << "tensor " << i;
  }
  // The same again, bit for bit.
  const std::vector<at::Tensor> again =
      Pass(there(x), there(logits), there(weights), there(biases));
  for (size_t i = 0; i < found.size(); ++i) EXPECT_TRUE(at::equal(found[i], again[i])) << i;
}

TEST_P(CudaExperts, WeightsThatLieAnywhereGiveTheSame) {
  const auto& [type, numerics, has_biases, size] = GetParam();
  const at::TensorOptions options = at::device(kGpu).dtype(type);
  const at::Tensor x = at::randn({40, size}, options);
  const at::Tensor first = at::tensor({0, 7, 7, 40}, at::kLong).to(kGpu);
  const at::Tensor together = at::randn({3, 2 * size, size}, options);
  std::vector<at::Tensor> apart;
  for (const int64_t e : {2, 0, 1}) apart.push_back(together[e].clone());
  const std::vector<at::Tensor> in_order = {apart[1], apart[2], apart[0]};
  EXPECT_TRUE(at::equal(device::GroupedProduct(x, first, together.unbind(), {}, false),
                        device::GroupedProduct(x, first, in_order, {}, false)));
}

TEST_P(CudaExperts, RowsOfOtherRanksAreZero) {
  const auto& [type, numerics, has_biases, size] = GetParam();
  const at::TensorOptions options = at::device(kGpu).dtype(type);
  const at::Tensor x = at::randn({40, size}, options);
  const at::Tensor first = at::tensor({5, 7, 20, 33}, at::kLong).to(kGpu);
  const std::vector<at::Tensor> weights = at::randn({3, 2 * size, size}, options).unbind();
  const at::Tensor found = device::GroupedProduct(x, first, weights, {}, /*has_others=*/true);
  EXPECT_EQ(found.narrow(0, 0, 5).abs().sum().item<float>(), 0);
  EXPECT_EQ(found.narrow(0, 33, 7).abs().sum().item<float>(), 0);
  const at::Tensor expected =
      at::mm(x.narrow(0, 20, 13).to(at::kDouble), weights[2].to(at::kDouble).t());
  const double tolerance = type == at::kFloat ? 1e-4 : 3e-2;
  EXPECT_TRUE(
      at::allclose(found.narrow(0, 20, 13).to(at::kDouble), expected, tolerance, tolerance * 10));
}

std::vector<LayerCase> LayerCases() {
  std::vector<LayerCase> cases;
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    for (const Numerics numerics : {Numerics::kFast, Numerics::kExact}) {
      for (const bool has_biases : {false, true}) {
        // Of which ATen takes one.
        for (const int64_t size : {64, 36}) cases.push_back({type, numerics, has_biases, size});
      }
    }
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Cases, CudaExperts, ::testing::ValuesIn(LayerCases()),
                         [](const ::testing::TestParamInfo<LayerCase>& info) {
                           return std::string(at::toString(info.param.type)) +
                                  (info.param.numerics == Numerics::kFast ? "Fast" : "Exact") +
                                  (info.param.has_biases ? "Biases" : "") +
                                  std::to_string(info.param.size);
                         });

}  // namespace
}  // namespace tandem::model
