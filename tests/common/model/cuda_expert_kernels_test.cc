// The CUDA kernels of experts on a CPU, against the CPU's own.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cstdint>
#include <vector>

#include "common/model/expert_rows.h"
#include "common/model/router.h"
#include "tests/common/model/routing_kinds.h"
#include "tests/support/cuda_emulation.h"
// After it.
#include "common/model/kernels/cuda/router_kernels.cu"
#include "common/model/kernels/cuda/weighted_sum.cu"

namespace tandem::model {
namespace {

cuda::RoutedLogits RoutedOf(const at::Tensor& logits, const Router& router) {
  cuda::RoutedLogits routed;
  routed.score = router.spec.score;
  routed.rows = logits.size(0);
  routed.num_experts = static_cast<int>(logits.size(1));
  routed.top_k = static_cast<int>(router.spec.top_k);
  routed.logits = logits.const_data_ptr<float>();
  if (router.correction_bias.defined()) {
    routed.correction_bias = router.correction_bias.const_data_ptr<float>();
  }
  return routed;
}

at::Tensor Choose(const at::Tensor& logits, const Router& router) {
  at::Tensor experts = at::full({logits.size(0), router.spec.top_k}, -1, at::kLong);
  cuda::ChooseExperts args;
  args.routed = RoutedOf(logits, router);
  args.num_groups = static_cast<int>(router.spec.num_groups);
  args.top_groups = static_cast<int>(router.spec.top_groups);
  args.group_score = router.spec.group_score;
  args.experts = experts.mutable_data_ptr<int64_t>();
  EXPECT_EQ(cuda::Launch(args, nullptr), cudaSuccess);
  return experts;
}

at::Tensor Weigh(const at::Tensor& logits, const at::Tensor& experts, const Router& router) {
  at::Tensor weights = at::full(experts.sizes(), -1, at::kFloat);
  cuda::WeighExperts args;
  args.routed = RoutedOf(logits, router);
  args.normalize = router.spec.normalize;
  args.scale = static_cast<float>(router.spec.scale);
  args.jitter = static_cast<float>(router.spec.jitter);
  args.experts = experts.const_data_ptr<int64_t>();
  args.weights = weights.mutable_data_ptr<float>();
  EXPECT_EQ(cuda::Launch(args, nullptr), cudaSuccess);
  return weights;
}

class CudaRouterOf : public ::testing::TestWithParam<RoutingKind> {
 protected:
  static Router WithBias(int64_t num_experts) {
    Router router{GetParam().spec, {}};
    if (router.spec.correction_bias) router.correction_bias = at::randn({num_experts}) * 0.3;
    return router;
  }
};

TEST_P(CudaRouterOf, ChoosesAndWeighsLikeTheCpu) {
  at::manual_seed(3);
  // With more experts than a warp has lanes, one by one and many times over.
  for (const int64_t num_experts : {kExpertsOfKinds, 5 * kExpertsOfKinds}) {
    // As few groups as the kernel has room for.
    if (GetParam().spec.num_groups > cuda::kMostGroups) continue;
    const Router router = WithBias(num_experts);
    const at::Tensor logits = at::randn({9, num_experts}) * 2;
    // Equal logits, and NaN among them.
    logits[1].fill_(0.5);
    logits[2].narrow(0, 7, 30).fill_(1.5);
    logits[3][num_experts - 1] = NAN;
    logits[4].fill_(NAN);
    const at::Tensor experts = ChooseExperts(logits, router);
    EXPECT_TRUE(at::equal(Choose(logits, router), experts));
    const at::Tensor found = Weigh(logits, experts, router);
    EXPECT_TRUE(at::allclose(found, ExpertWeights(logits, experts, router), 1e-5, 1e-7,
                             /*equal_nan=*/true));
    // A row's bits do not depend on the batch.
    const at::Tensor row = logits.narrow(0, 5, 1).contiguous();
    const at::Tensor of_row = experts.narrow(0, 5, 1).contiguous();
    EXPECT_TRUE(at::equal(Weigh(row, of_row, router), found.narrow(0, 5, 1)));
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, CudaRouterOf, ::testing::ValuesIn(RoutingKinds()),
                         [](const ::testing::TestParamInfo<RoutingKind>& info) {
                           return info.param.name;
                         });

TEST(CudaRouter, ANanInTheCorrectionShowsInAllWeights) {
  Router router{{.top_k = 2, .score = RoutingSpec::Score::kSigmoid, .correction_bias = true}, {}};
  router.correction_bias = at::zeros({40});
  router.correction_bias[33] = NAN;
  const at::Tensor logits = at::randn({2, 40});
  EXPECT_TRUE(Weigh(logits, Choose(logits, router), router).isnan().all().item<bool>());
}

TEST(CudaRouter, RefusesWhatItHasNoRoomFor) {
  const at::Tensor logits = at::randn({1, 64});
  at::Tensor experts = at::zeros({1, 64}, at::kLong);
  cuda::ChooseExperts args;
  args.routed = RoutedOf(logits, {{.top_k = 33}, {}});
  args.experts = experts.mutable_data_ptr<int64_t>();
  EXPECT_EQ(cuda::Launch(args, nullptr), cudaErrorInvalidValue);
  args.routed.top_k = 9;
  args.num_groups = 16;  // of 4
  args.top_groups = 2;
  EXPECT_EQ(cuda::Launch(args, nullptr), cudaErrorInvalidValue);
  args.routed.top_k = 8;
  EXPECT_EQ(cuda::Launch(args, nullptr), cudaSuccess);
}

TEST(CudaExpertRows, AreTheCpus) {
  at::manual_seed(7);
  for (const int64_t tokens : {0, 1, 3, 130, 700}) {
    for (const int64_t num_experts : {4, 60}) {
      const at::Tensor experts = ChooseExperts(
          at::randn({tokens, num_experts}) + at::arange(num_experts) * 0.05, {{.top_k = 3}, {}});
      const ExpertRows expected = GroupByExpert(experts, num_experts);
      const ExpertRows found{at::full_like(expected.first, -1), at::full_like(expected.tokens, -1),
                             at::full_like(expected.places, -1)};
      cuda::GroupRows args;
      args.tokens = tokens;
      args.num_experts = static_cast<int>(num_experts);
      args.top_k = 3;
      args.experts = experts.const_data_ptr<int64_t>();
      args.first = found.first.mutable_data_ptr<int64_t>();
      args.token_of_row = found.tokens.mutable_data_ptr<int64_t>();
      args.places = found.places.mutable_data_ptr<int64_t>();
      ASSERT_EQ(cuda::Launch(args, nullptr), cudaSuccess);
      EXPECT_TRUE(at::equal(found.first, expected.first)) << tokens << " tokens";
      EXPECT_TRUE(at::equal(found.tokens, expected.tokens)) << tokens << " tokens";
      EXPECT_TRUE(at::equal(found.places, expected.places)) << tokens << " tokens";
    }
  }
}

class CudaWeightedSum : public ::testing::TestWithParam<at::ScalarType> {
 protected:
  static cuda::Element type() {
    return GetParam() == at::kFloat ? cuda::Element::kFloat32 : cuda::Element::kBFloat16;
  }
  static bool AreClose(const at::Tensor& found, const at::Tensor& expected) {
    const double tolerance = found.scalar_type() == at::kFloat ? 1e-5 : 1e-2;
    return at::allclose(found.to(at::kDouble), expected.to(at::kDouble), tolerance, tolerance);
  }
};

TEST_P(CudaWeightedSum, IsTheCpusForwardAndBackward) {
  at::manual_seed(11);
  constexpr int64_t kTokens = 7;
  constexpr int64_t kTerms = 3;
  for (const int64_t size : {8, 9, 2056, 4200}) {
    const ExpertRows rows =
        GroupByExpert(ChooseExperts(at::randn({kTokens, 5}), {{.top_k = kTerms}, {}}), 5);
    const at::Tensor results = at::randn({kTokens * kTerms, size}).to(GetParam()).requires_grad_();
    const at::Tensor weights = at::rand({kTokens, kTerms}).requires_grad_();
    const at::Tensor expected = CombineRows(results, weights, rows);
    const at::Tensor found = at::empty_like(expected);
    cuda::WeightedSum sum;
    sum.type = type();
    sum.sums = kTokens;
    sum.size = size;
    sum.terms = kTerms;
    sum.rows = results.const_data_ptr();
    sum.places = rows.places.const_data_ptr<int64_t>();
    sum.weights = weights.const_data_ptr<float>();
    sum.out = found.mutable_data_ptr();
    ASSERT_EQ(cuda::Launch(sum, nullptr), cudaSuccess);
    EXPECT_TRUE(AreClose(found, expected)) << size;

    const at::Tensor grad = at::randn({kTokens, size}).to(GetParam());
    expected.backward(grad);
    const at::Tensor grad_rows = at::empty_like(results);
    const at::Tensor grad_weights = at::empty_like(weights);
    cuda::WeightedSumBackward backward;
    backward.type = type();
    backward.sums = kTokens;
    backward.size = size;
    backward.terms = kTerms;
    backward.rows = sum.rows;
    backward.places = sum.places;
    backward.weights = sum.weights;
    backward.grad_out = grad.const_data_ptr();
    backward.grad_rows = grad_rows.mutable_data_ptr();
    backward.grad_weights = grad_weights.mutable_data_ptr<float>();
    ASSERT_EQ(cuda::Launch(backward, nullptr), cudaSuccess);
    EXPECT_TRUE(AreClose(grad_rows, results.grad())) << size;
    EXPECT_TRUE(at::allclose(grad_weights, weights.grad(), 1e-4, 1e-4)) << size;
  }
}

TEST_P(CudaWeightedSum, OfOneTermOrWithoutWeights) {
  at::manual_seed(13);
  const at::Tensor rows = at::randn({6, 24}).to(GetParam());
  const at::Tensor weights = at::rand({6, 1});
  const at::Tensor found = at::empty_like(rows);
  cuda::WeightedSum sum;
  sum.type = type();
  sum.sums = 6;
  sum.size = 24;
  sum.terms = 1;
  sum.rows = rows.const_data_ptr();
  sum.weights = weights.const_data_ptr<float>();
  sum.out = found.mutable_data_ptr();
  ASSERT_EQ(cuda::Launch(sum, nullptr), cudaSuccess);
  EXPECT_TRUE(AreClose(found, ScaleRows(rows, weights)));
  const at::Tensor places = at::tensor({4, 1, 0, 5, 2, 3}, at::kLong).view({3, 2});
  sum.sums = 3;
  sum.terms = 2;
  ASSERT_EQ(cuda::Launch(sum, nullptr), cudaErrorInvalidValue);
  sum.weights = nullptr;
  sum.places = places.const_data_ptr<int64_t>();
  ASSERT_EQ(cuda::Launch(sum, nullptr), cudaSuccess);
  const at::Tensor picked = rows.index_select(0, places.flatten()).view({3, 2, 24}).to(at::kFloat);
  EXPECT_TRUE(AreClose(found.narrow(0, 0, 3), picked.sum(1).to(GetParam())));
}

INSTANTIATE_TEST_SUITE_P(Types, CudaWeightedSum, ::testing::Values(at::kFloat, at::kBFloat16),
                         [](const ::testing::TestParamInfo<at::ScalarType>& info) {
                           return at::toString(info.param);
                         });

}  // namespace
}  // namespace tandem::model
