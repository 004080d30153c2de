// The operations of experts against the same in plain ATen: values, gradients, and that a token's
// bits do not depend on the batch.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <vector>

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

TEST(ExpertRows, AreInTheOrderOfTokensWithinAnExpert) {
  const ExpertRows rows = GroupByExpert(at::tensor({0, 3, 1, 3, 0, 1}, at::kLong).view({3, 2}), 4);
  EXPECT_THAT(ToVector(rows.first), ElementsAre(0, 2, 4, 4, 6));
  EXPECT_THAT(ToVector(rows.tokens), ElementsAre(0, 2, 1, 2, 0, 1));
  EXPECT_THAT(ToVector(rows.places), ElementsAre(0, 4, 2, 5, 1, 3));
}

TEST(ExpertRows, HaveTheWeightsOfTheirTokensExperts) {
  const ExpertRows rows = GroupByExpert(at::tensor({0, 3, 1, 3, 0, 1}, at::kLong).view({3, 2}), 4);
  const at::Tensor weights = at::arange(6, at::kFloat).view({3, 2});
  EXPECT_TRUE(at::equal(WeightsByRow(weights, rows),
                        at::tensor({0.f, 4.f, 2.f, 5.f, 1.f, 3.f}).view({6, 1})));
  const at::Tensor results = at::arange(12, at::kFloat).view({6, 2});
  EXPECT_TRUE(
      at::equal(SumRowsOfTokens(results, rows), CombineRows(results, at::ones({3, 2}), rows)));
}

TEST(ExpertRows, OfSomeExpertsLieAmongThoseOfAll) {
  const ExpertRows all = GroupByExpert(at::tensor({0, 3, 1, 3, 0, 1}, at::kLong).view({3, 2}), 4);
  const OwnExpertRows own = OwnRows(all, {1, 3});
  EXPECT_EQ(own.begin, 2);
  EXPECT_THAT(ToVector(own.rows.first), ElementsAre(0, 2, 2));
  EXPECT_THAT(ToVector(own.rows.tokens), ElementsAre(1, 2));
  const at::Tensor x = at::arange(6, at::kFloat).view({3, 2});
  const at::Tensor rows = DispatchOwnRows(x, own);
  EXPECT_TRUE(at::equal(rows, x.narrow(0, 1, 2)));
  const at::Tensor among = AmongAllRows(rows, own, all);
  EXPECT_TRUE(at::equal(among.narrow(0, 2, 2), rows));
  EXPECT_EQ(among.narrow(0, 0, 2).abs().sum().item<float>(), 0);
  EXPECT_EQ(among.narrow(0, 4, 2).abs().sum().item<float>(), 0);

  const OwnExpertRows none = OwnRows(all, {2, 3});
  EXPECT_EQ(DispatchOwnRows(x, none).size(0), 0);
  EXPECT_EQ(AmongAllRows(at::empty({0, 2}), none, all).abs().sum().item<float>(), 0);
}

// A layer of experts whose last one no token reaches.
struct Layer {
  static constexpr int64_t kExperts = 5;
  at::Tensor x;        // [tokens, in]
  at::Tensor logits;   // [tokens, experts]
  at::Tensor weights;  // [experts, out, in]
  at::Tensor biases;   // [experts, out]
};

Layer MakeLayer(int64_t tokens, int64_t in, int64_t out) {
  at::manual_seed(tokens + in);
  Layer layer{at::randn({tokens, in}), at::randn({tokens, Layer::kExperts}),
              at::randn({Layer::kExperts, out, in}) * 0.3, at::randn({Layer::kExperts, out})};
  layer.logits.select(1, Layer::kExperts - 1).fill_(-1e9);
  return layer;
}

// Of each expert: a row of `stacked`, rounded to `dtype` and then in `type`.
std::vector<at::Tensor> LeavesOf(const at::Tensor& stacked, at::ScalarType dtype,
                                 at::ScalarType type) {
  std::vector<at::Tensor> leaves;
  for (const at::Tensor& row : stacked.unbind()) {
    leaves.push_back(row.to(dtype).to(type).clone().requires_grad_());
  }
  return leaves;
}

at::Tensor Compute(const at::Tensor& x, const at::Tensor& logits,
                   const std::vector<at::Tensor>& weights, const std::vector<at::Tensor>& biases,
                   bool weigh_inputs = false) {
  const Router router{{.top_k = 2, .normalize = true}, {}};
  const at::Tensor experts = ChooseExperts(logits, router);
  const ExpertRows rows = GroupByExpert(experts, Layer::kExperts);
  const at::Tensor factors = ExpertWeights(logits, experts, router);
  at::Tensor read = DispatchRows(x, rows);
  if (weigh_inputs) read = ScaleRows(read, WeightsByRow(factors, rows));
  const at::Tensor results =
      GroupedLinear(read, rows, weights, biases,
                    std::vector<const kernels::PackedMatrix*>(weights.size(), nullptr));
  return weigh_inputs ? SumRowsOfTokens(results, rows) : CombineRows(results, factors, rows);
}

class ExpertsOfSize : public ::testing::TestWithParam<int64_t> {
 protected:
  void ExpectPlainGradients(const Layer& layer, at::ScalarType dtype, bool has_biases,
                            bool weigh_inputs) {
    const double tolerance = dtype == at::kFloat ? 1e-4 : 5e-2;
    std::vector<std::vector<at::Tensor>> results;
    for (const at::ScalarType type : {dtype, at::kDouble}) {
      const at::Tensor x = layer.x.to(dtype).to(type).clone().requires_grad_();
      const at::Tensor logits =
          layer.logits.to(type == at::kDouble ? at::kDouble : at::kFloat).clone().requires_grad_();
      const std::vector<at::Tensor> weights = LeavesOf(layer.weights, dtype, type);
      std::vector<at::Tensor> biases;
      if (has_biases) biases = LeavesOf(layer.biases, dtype, type);
      const at::Tensor out = Compute(x, logits, weights, biases, weigh_inputs);
      const at::Tensor factors = at::cos(at::arange(out.numel(), at::kDouble)).view(out.sizes());
      (out.to(at::kDouble) * factors).sum().backward();
      EXPECT_FALSE(weights.back().grad().defined());
      results.push_back({out.detach(), x.grad(), logits.grad()});
      for (int64_t e = 0; e + 1 < Layer::kExperts; ++e) {
        results.back().push_back(weights[e].grad());
        if (has_biases) results.back().push_back(biases[e].grad());
      }
    }
    for (size_t i = 0; i < results[0].size(); ++i) {
      const at::Tensor difference = (results[0][i].to(at::kDouble) - results[1][i]).abs();
      EXPECT_LT(difference.max().item<double>(),
                tolerance * (1 + results[1][i].abs().max().item<double>()))
          << "result " << i << (has_biases ? ", with biases" : "");
    }
  }
};

TEST_P(ExpertsOfSize, HaveTheValuesAndGradientsOfThePlainOperations) {
  const Layer layer = MakeLayer(33, GetParam(), 2 * GetParam() + 1);
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    for (const bool has_biases : {false, true}) {
      for (const bool weigh_inputs : {false, true}) {
        ExpectPlainGradients(layer, dtype, has_biases, weigh_inputs);
      }
    }
  }
}

TEST_P(ExpertsOfSize, GiveATokenTheSameBitsInAnyBatch) {
  const Layer layer = MakeLayer(70, GetParam(), 2 * GetParam() + 1);
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    const std::vector<at::Tensor> weights = LeavesOf(layer.weights, dtype, dtype);
    const std::vector<at::Tensor> biases = LeavesOf(layer.biases, dtype, dtype);
    const at::Tensor x = layer.x.to(dtype);
    const at::Tensor together = Compute(x, layer.logits, weights, biases).detach();
    const at::NoGradGuard no_grad;
    for (const int64_t count : {1, 2, 17}) {
      const at::Tensor part =
          Compute(x.narrow(0, 5, count), layer.logits.narrow(0, 5, count), weights, biases);
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
