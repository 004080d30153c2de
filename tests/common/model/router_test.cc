// Routing of every kind against the same in plain ATen: which experts it chooses, their weights and
// gradients; and numbers computed by hand.
#include "common/model/router.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "common/model/eager_ops.h"
#include "tests/common/model/routing_kinds.h"

namespace tandem::model {
namespace {

using ::testing::ElementsAre;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::vector<int64_t> ToVector(const at::Tensor& tensor) {
  const at::Tensor values = tensor.contiguous();
  const int64_t* const data = values.const_data_ptr<int64_t>();
  return {data, data + values.numel()};
}

std::vector<int64_t> Choose(const std::vector<float>& logits, const Router& router) {
  return ToVector(ChooseExperts(at::tensor(logits).unsqueeze(0), router));
}

class RouterOf : public ::testing::TestWithParam<RoutingKind> {
 protected:
  static constexpr int64_t kExperts = kExpertsOfKinds;

  static Router WithBias(at::ScalarType type) {
    Router router{GetParam().spec, {}};
    if (router.spec.correction_bias) {
      at::manual_seed(5);
      router.correction_bias = (at::randn({kExperts}) * 0.3).to(type);
    }
    return router;
  }
};

TEST_P(RouterOf, ChoosesAndWeighsLikeThePlainOperations) {
  const Router router = WithBias(at::kFloat);
  const Router wide = WithBias(at::kDouble);
  at::manual_seed(3);
  const at::Tensor logits = at::randn({57, kExperts}) * 2;
  const at::Tensor experts = ChooseExperts(logits, router);
  EXPECT_TRUE(at::equal(experts, eager::ChooseExperts(logits, router)));
  const at::Tensor ours = logits.clone().requires_grad_();
  const at::Tensor theirs = logits.to(at::kDouble).requires_grad_();
  const at::Tensor weights = ExpertWeights(ours, experts, router);
  const at::Tensor expected = eager::ExpertWeights(theirs, experts, wide);
  EXPECT_TRUE(at::allclose(weights.to(at::kDouble), expected, 1e-5, 1e-6));
  const at::Tensor factors = at::cos(at::arange(weights.numel())).view(weights.sizes());
  (weights * factors).sum().backward();
  (expected * factors.to(at::kDouble)).sum().backward();
  EXPECT_TRUE(at::allclose(ours.grad().to(at::kDouble), theirs.grad(), 1e-4, 1e-6));
}

TEST_P(RouterOf, ChoosesDistinctExpertsInAscendingOrder) {
  const Router router = WithBias(at::kFloat);
  for (const at::Tensor& logits : {at::zeros({1, kExperts}), at::full({1, kExperts}, kNan)}) {
    const std::vector<int64_t> experts = ToVector(ChooseExperts(logits, router));
    ASSERT_EQ(static_cast<int64_t>(experts.size()), router.spec.top_k);
    EXPECT_TRUE(std::adjacent_find(experts.begin(), experts.end(), std::greater_equal<>()) ==
                experts.end());
    EXPECT_LT(experts.back(), kExperts);
  }
}

TEST_P(RouterOf, ANanOfAnyExpertShowsInTheWeights) {
  const Router router = WithBias(at::kFloat);
  at::Tensor logits = at::randn({2, kExperts});
  logits[1][kExperts - 1] = kNan;
  for (const at::Tensor& of_type : {logits, logits.to(at::kDouble)}) {
    const at::Tensor experts = ChooseExperts(of_type, router);
    const at::Tensor weights = ExpertWeights(of_type, experts, router);
    EXPECT_FALSE(weights[0].isnan().any().item<bool>());
    EXPECT_TRUE(weights[1].isnan().all().item<bool>());
  }
}

TEST_P(RouterOf, GivesARowTheSameBitsInAnyBatch) {
  const Router router = WithBias(at::kFloat);
  at::manual_seed(9);
  const at::Tensor logits = at::randn({300, kExperts});
  const at::Tensor experts = ChooseExperts(logits, router);
  const at::Tensor weights = ExpertWeights(logits, experts, router);
  for (const int64_t i : {0, 7, 299}) {
    const at::Tensor row = logits.narrow(0, i, 1);
    const at::Tensor chosen = ChooseExperts(row, router);
    EXPECT_TRUE(at::equal(chosen, experts.narrow(0, i, 1)));
    EXPECT_TRUE(at::equal(ExpertWeights(row, chosen, router), weights.narrow(0, i, 1)));
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, RouterOf, ::testing::ValuesIn(RoutingKinds()),
                         [](const ::testing::TestParamInfo<RoutingKind>& info) {
                           return info.param.name;
                         });

TEST(Router, TakesTheLowerOfEqualExperts) {
  const Router router{{.top_k = 2}, {}};
  EXPECT_THAT(Choose({1, 3, 3, 3}, router), ElementsAre(1, 2));
  EXPECT_THAT(Choose({2, 2, 2, 5}, router), ElementsAre(0, 3));
  EXPECT_THAT(Choose({0, 0, 0, 0}, router), ElementsAre(0, 1));
  EXPECT_THAT(Choose({9, 1, 8, 10}, router), ElementsAre(0, 3));
  EXPECT_THAT(Choose({kNan, 1, kNan, -4}, router), ElementsAre(1, 3));
  EXPECT_THAT(Choose({kNan, kNan, kNan, kNan}, router), ElementsAre(0, 1));
  // Sigmoids of 1 in float32.
  const Router sigmoid{{.top_k = 2, .score = RoutingSpec::Score::kSigmoid}, {}};
  EXPECT_THAT(Choose({30, 40, 50, 60}, sigmoid), ElementsAre(0, 1));
  const Router of_chosen{{.top_k = 2, .score = RoutingSpec::Score::kSigmoidOfChosen}, {}};
  EXPECT_THAT(Choose({30, 40, 50, 60}, of_chosen), ElementsAre(2, 3));
}

TEST(Router, TakesTheLowerOfEqualGroups) {
  const Router router{{.top_k = 2, .num_groups = 3, .top_groups = 1}, {}};
  EXPECT_THAT(Choose({1, 5, 5, 4, 0, 5}, router), ElementsAre(0, 1));
  EXPECT_THAT(Choose({1, 4, 5, 4, 0, 5}, router), ElementsAre(2, 3));
  EXPECT_THAT(Choose({1, kNan, kNan, 4, 0, 5}, router), ElementsAre(4, 5));
}

// Of [5, 0], [3, 3] and [4, 1] the first has the best expert, the second the best two.
TEST(Router, GroupsAreComparedByTheirBestOrTheirBestTwo) {
  Router router{{.top_k = 1, .num_groups = 3, .top_groups = 1}, {}};
  EXPECT_THAT(Choose({5, 0, 3, 3, 4, 1}, router), ElementsAre(0));
  router.spec.group_score = RoutingSpec::GroupScore::kSumOfTwo;
  EXPECT_THAT(Choose({5, 0, 3, 3, 4, 1}, router), ElementsAre(2));
}

TEST(Router, TheCorrectionBiasChoosesButDoesNotWeigh) {
  const Router router{{.top_k = 1, .score = RoutingSpec::Score::kSigmoid, .correction_bias = true},
                      at::tensor({0.0f, 0.0f, 0.6f})};
  const at::Tensor logits = at::tensor({1.0f, 2.0f, 0.0f}).unsqueeze(0);
  const at::Tensor experts = ChooseExperts(logits, router);
  EXPECT_THAT(ToVector(experts), ElementsAre(2));
  EXPECT_EQ(ExpertWeights(logits, experts, router).item<float>(), 0.5f);
}

TEST(Router, ANanOfTheCorrectionBiasShowsInAllWeights) {
  for (const RoutingSpec::Score score :
       {RoutingSpec::Score::kSoftmax, RoutingSpec::Score::kSigmoid}) {
    const Router router{{.top_k = 2, .score = score, .correction_bias = true},
                        at::tensor({0.0f, 0.0f, kNan})};
    const at::Tensor logits = at::zeros({2, 3});
    const at::Tensor experts = ChooseExperts(logits, router);
    EXPECT_TRUE(ExpertWeights(logits, experts, router).isnan().all().item<bool>());
    EXPECT_TRUE(eager::ExpertWeights(logits, experts, router).isnan().all().item<bool>());
  }
}

// A bias can choose experts of no share: their weights are still finite.
TEST(Router, CorrectedChoicesAreWeighedAmongThemselves) {
  const Router router{{.top_k = 2, .normalize = true, .correction_bias = true},
                      at::tensor({2.0f, 2.0f, 0.0f})};
  const at::Tensor logits = at::tensor({-200.0f, -200.0f, 100.0f}).unsqueeze(0);
  const at::Tensor experts = ChooseExperts(logits, router);
  EXPECT_THAT(ToVector(experts), ElementsAre(0, 1));
  EXPECT_TRUE(at::equal(ExpertWeights(logits, experts, router), at::full({1, 2}, 0.5f)));
}

// With jitter 0.1 a logit counts down to 80 % of the chosen one: 2.0 sees 1.7, 1.7 sees 1.5.
TEST(Router, SparsemixerComparesNearbyExperts) {
  const Router router{{.top_k = 2, .score = RoutingSpec::Score::kSparsemixer, .jitter = 0.1}, {}};
  const at::Tensor logits = at::tensor({1.5f, 2.0f, 1.7f, -3.0f}).unsqueeze(0);
  const at::Tensor experts = ChooseExperts(logits, router);
  EXPECT_THAT(ToVector(experts), ElementsAre(1, 2));
  const at::Tensor weights = ExpertWeights(logits, experts, router);
  EXPECT_NEAR(weights[0][0].item<double>(), 1 / (1 + std::exp(-0.3)), 1e-6);
  EXPECT_NEAR(weights[0][1].item<double>(), 1 / (1 + std::exp(-0.2)), 1e-6);
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

}  // namespace
}  // namespace tandem::model
