// Routing, and the operations of experts against the same in plain ATen: values, gradients, and
// that a token's bits do not depend on the batch.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "common/model/eager_ops.h"
#include "common/model/expert_rows.h"
#include "common/model/grouped_linear.h"
#include "common/model/linear.h"
#include "common/model/router.h"

namespace tandem::model {
namespace {

using ::testing::ElementsAre;

std::vector<int64_t> ToVector(const at::Tensor& tensor) {
  const at::Tensor values = tensor.contiguous();
  const int64_t* const data = values.const_data_ptr<int64_t>();
  return {data, data + values.numel()};
}

TEST(Router, TakesTheLowerOfEqualExperts) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const auto choose = [](std::vector<float> logits) {
    return ToVector(ChooseExperts(at::tensor(logits).unsqueeze(0), 2));
  };
  EXPECT_THAT(choose({1, 3, 3, 3}), ElementsAre(1, 2));
  EXPECT_THAT(choose({2, 2, 2, 5}), ElementsAre(0, 3));
  EXPECT_THAT(choose({0, 0, 0, 0}), ElementsAre(0, 1));
  EXPECT_THAT(choose({9, 1, 8, 10}), ElementsAre(0, 3));
  EXPECT_THAT(choose({nan, 1, nan, -4}), ElementsAre(1, 3));
  EXPECT_THAT(choose({nan, nan, nan, nan}), ElementsAre(0, 1));
}

TEST(Router, ChoosesAndWeighsLikeThePlainOperations) {
  at::manual_seed(3);
  for (const int64_t num_experts : {1, 4, 37, 128}) {
    const at::Tensor logits = at::randn({57, num_experts}) * 3;
    const int64_t top_k = std::min<int64_t>(num_experts, 8);
    const at::Tensor experts = ChooseExperts(logits, top_k);
    EXPECT_TRUE(at::equal(experts, eager::ChooseExperts(logits, top_k)));
    for (const bool normalize : {false, true}) {
      const at::Tensor ours = logits.clone().requires_grad_();
      const at::Tensor theirs = logits.to(at::kDouble).requires_grad_();
      const at::Tensor weights = ExpertWeights(ours, experts, normalize);
      const at::Tensor expected = eager::ExpertWeights(theirs, experts, normalize);
      EXPECT_TRUE(at::allclose(weights.to(at::kDouble), expected, 1e-5, 1e-6));
      const at::Tensor factors = at::cos(at::arange(weights.numel())).view(weights.sizes());
      (weights * factors).sum().backward();
      (expected * factors.to(at::kDouble)).sum().backward();
      EXPECT_TRUE(at::allclose(ours.grad().to(at::kDouble), theirs.grad(), 1e-4, 1e-6));
    }
  }
}

TEST(Router, ANanOfAnyExpertShowsInTheWeights) {
  at::Tensor logits = at::zeros({2, 4});
  logits[1][3] = std::numeric_limits<float>::quiet_NaN();
  const at::Tensor experts = ChooseExperts(logits, 2);
  for (const bool normalize : {false, true}) {
    const at::Tensor weights = ExpertWeights(logits, experts, normalize);
    EXPECT_FALSE(weights[0].isnan().any().item<bool>());
    EXPECT_TRUE(weights[1].isnan().all().item<bool>());
  }
}

TEST(Router, GatesAreSigmoids) {
  const at::Tensor logits = at::linspace(-9, 9, 23).unsqueeze(1);
  const at::Tensor ours = logits.clone().requires_grad_();
  const at::Tensor theirs = logits.clone().requires_grad_();
  const at::Tensor weights = GateWeights(ours);
  EXPECT_TRUE(at::allclose(weights, at::sigmoid(theirs)));
  weights.square().sum().backward();
  at::sigmoid(theirs).square().sum().backward();
  EXPECT_TRUE(at::allclose(ours.grad(), theirs.grad()));
}

TEST(ExpertRows, AreInTheOrderOfTokensWithinAnExpert) {
  const ExpertRows rows = GroupByExpert(at::tensor({0, 3, 1, 3, 0, 1}, at::kLong).view({3, 2}), 4);
  EXPECT_THAT(ToVector(rows.first), ElementsAre(0, 2, 4, 4, 6));
  EXPECT_THAT(ToVector(rows.tokens), ElementsAre(0, 2, 1, 2, 0, 1));
  EXPECT_THAT(ToVector(rows.places), ElementsAre(0, 4, 2, 5, 1, 3));
}

// A layer of experts whose last one no token reaches.
struct Layer {
  static constexpr int64_t kExperts = 5;
  at::Tensor x;        // [tokens, in]
  at::Tensor logits;   // [tokens, experts]
  at::Tensor weights;  // [experts, out, in]
};

Layer MakeLayer(int64_t tokens, int64_t in, int64_t out) {
  at::manual_seed(tokens + in);
  Layer layer{at::randn({tokens, in}), at::randn({tokens, Layer::kExperts}),
              at::randn({Layer::kExperts, out, in}) * 0.3};
  layer.logits.select(1, Layer::kExperts - 1).fill_(-1e9);
  return layer;
}

std::vector<at::Tensor> WeightsOf(const Layer& layer, at::ScalarType dtype) {
  std::vector<at::Tensor> weights;
  for (const at::Tensor& weight : layer.weights.unbind()) {
    weights.push_back(weight.to(dtype).clone().requires_grad_());
  }
  return weights;
}

at::Tensor Compute(const at::Tensor& x, const at::Tensor& logits,
                   const std::vector<at::Tensor>& weights) {
  const at::Tensor experts = ChooseExperts(logits, 2);
  const ExpertRows rows = GroupByExpert(experts, Layer::kExperts);
  const at::Tensor results =
      GroupedLinear(DispatchRows(x, rows), rows, weights,
                    std::vector<const kernels::PackedMatrix*>(weights.size(), nullptr));
  return CombineRows(results, ExpertWeights(logits, experts, true), rows);
}

class ExpertsOfSize : public ::testing::TestWithParam<int64_t> {};

TEST_P(ExpertsOfSize, HaveTheValuesAndGradientsOfThePlainOperations) {
  const Layer layer = MakeLayer(33, GetParam(), 2 * GetParam() + 1);
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    const double tolerance = dtype == at::kFloat ? 1e-4 : 5e-2;
    std::vector<std::vector<at::Tensor>> results;
    for (const at::ScalarType type : {dtype, at::kDouble}) {
      const at::Tensor x = layer.x.to(dtype).to(type).clone().requires_grad_();
      const at::Tensor logits =
          layer.logits.to(type == at::kDouble ? at::kDouble : at::kFloat).clone().requires_grad_();
      std::vector<at::Tensor> weights;
      for (const at::Tensor& weight : WeightsOf(layer, dtype)) {
        weights.push_back(weight.detach().to(type).clone().requires_grad_());
      }
      const at::Tensor out = Compute(x, logits, weights);
      const at::Tensor factors = at::cos(at::arange(out.numel(), at::kDouble)).view(out.sizes());
      (out.to(at::kDouble) * factors).sum().backward();
      EXPECT_FALSE(weights.back().grad().defined());
      results.push_back({out.detach(), x.grad(), logits.grad()});
      for (int64_t e = 0; e + 1 < Layer::kExperts; ++e) results.back().push_back(weights[e].grad());
    }
    for (size_t i = 0; i < results[0].size(); ++i) {
      const at::Tensor difference = (results[0][i].to(at::kDouble) - results[1][i]).abs();
      EXPECT_LT(difference.max().item<double>(),
                tolerance * (1 + results[1][i].abs().max().item<double>()))
          << "result " << i;
    }
  }
}

TEST_P(ExpertsOfSize, GiveATokenTheSameBitsInAnyBatch) {
  const Layer layer = MakeLayer(70, GetParam(), 2 * GetParam() + 1);
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    const std::vector<at::Tensor> weights = WeightsOf(layer, dtype);
    const at::Tensor x = layer.x.to(dtype);
    const at::Tensor together = Compute(x, layer.logits, weights).detach();
    const at::NoGradGuard no_grad;
    for (const int64_t count : {1, 2, 17}) {
      const at::Tensor part =
          Compute(x.narrow(0, 5, count), layer.logits.narrow(0, 5, count), weights);
      EXPECT_TRUE(at::equal(part, together.narrow(0, 5, count))) << count << " tokens";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, ExpertsOfSize, ::testing::Values(1, 7, 16, 33, 128));

TEST(LinearInFloat32, RoundsNothingToBfloat16) {
  at::manual_seed(9);
  const at::Tensor x = at::randn({11, 40}).to(at::kBFloat16).requires_grad_();
  const at::Tensor weight = at::randn({6, 40}).to(at::kBFloat16).requires_grad_();
  const at::Tensor wide_x = x.detach().to(at::kFloat).requires_grad_();
  const at::Tensor wide_weight = weight.detach().to(at::kFloat).requires_grad_();
  const at::Tensor out = LinearInFloat32(x, weight);
  const at::Tensor expected = Linear(wide_x, wide_weight);
  EXPECT_EQ(out.scalar_type(), at::kFloat);
  EXPECT_TRUE(at::allclose(out, expected, 1e-5, 1e-5));
  out.square().sum().backward();
  expected.square().sum().backward();
  EXPECT_EQ(x.grad().scalar_type(), at::kBFloat16);
  EXPECT_TRUE(at::allclose(x.grad().to(at::kFloat), wide_x.grad(), 1e-2, 1e-2));
  EXPECT_TRUE(at::allclose(weight.grad().to(at::kFloat), wide_weight.grad(), 1e-2, 1e-2));
}

}  // namespace
}  // namespace tandem::model
