// Attention by chunks of queries against the whole matrix of scores, in float64.
#include "common/model/chunked_attention.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <string>
#include <vector>

#include "common/model/eager_ops.h"

namespace tandem::model {
namespace {

struct Case {
  std::string name;
  AttentionParams params;
  bool sinks = false;
  int64_t v_head_dim = 8;
};

std::vector<Case> Cases() {
  std::vector<Case> cases = {{"plain"}, {"window"}, {"softcap"}, {"alibi"},
                             {"sinks"}, {"values"}, {"chunks"}};
  for (Case& a_case : cases) a_case.params.scale = 0.3;
  cases[1].params.window = 5;
  cases[2].params.softcap = 2.0;
  cases[3].params.alibi = {1.0, 6, 0};
  cases[4].sinks = true;
  cases[4].params.window = 9;
  cases[5].v_head_dim = 5;
  cases[6].params.window = {7, /*in_chunks=*/true};
  return cases;
}

class ChunkedAttentionTest : public ::testing::TestWithParam<Case> {};

TEST_P(ChunkedAttentionTest, AgreesWithTheWholeMatrix) {
  at::manual_seed(3);
  const at::Tensor cu_seqlens = at::tensor({0, 1, 1, 24, 40}, at::kLong);
  const auto options = at::TensorOptions(at::kDouble);
  const at::Tensor q = at::randn({40, 6, 8}, options).requires_grad_();
  const at::Tensor k = at::randn({40, 2, 8}, options).requires_grad_();
  const at::Tensor v = at::randn({40, 2, GetParam().v_head_dim}, options).requires_grad_();
  AttentionParams params = GetParam().params;
  std::vector<at::Tensor> inputs = {q, k, v};
  if (GetParam().sinks) {
    inputs.push_back(at::randn({6}, options).requires_grad_());
    params.sinks = inputs.back();
  }
  const at::Tensor whole = eager::PackedAttention(q, k, v, cu_seqlens, params);
  const at::Tensor weight = at::randn(whole.sizes(), options);
  const auto expected = torch::autograd::grad({(whole * weight).sum()}, inputs);
  // A query at a time, several, and all of them.
  for (const int64_t at_once : {1, 6 * 23 * 4, 1 << 20}) {
    const at::Tensor out = ChunkedAttention(q, k, v, cu_seqlens, params, at_once);
    EXPECT_LT((out - whole).abs().max().item<double>(), 1e-12) << at_once;
    const auto found = torch::autograd::grad({(out * weight).sum()}, inputs);
    for (size_t i = 0; i < inputs.size(); ++i) {
      EXPECT_LT((found[i] - expected[i]).abs().max().item<double>(), 1e-12)
          << "input " << i << ", " << at_once << " scores at once";
    }
    const at::NoGradGuard no_grad;
    EXPECT_TRUE(at::equal(ChunkedAttention(q, k, v, cu_seqlens, params, at_once), out));
  }
}

INSTANTIATE_TEST_SUITE_P(Switches, ChunkedAttentionTest, ::testing::ValuesIn(Cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace tandem::model
