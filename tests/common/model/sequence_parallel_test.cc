#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/model/packed_attention.h"
#include "common/model/parallel_fit.h"
#include "common/model/sequence_parallel_attention.h"
#include "tests/common/model/split_models.h"
#include "tests/fakes/local_process_group.h"
#include "tests/support/status_matchers.h"

namespace tandem::model {
namespace {

// Tokens split over ranks, heads split for attention: every rank's slice of the result, and the
// gradient of its slice of the input, are those of one rank with all tokens.
struct SequenceCase {
  std::string name;
  int64_t heads;
  int64_t kv_heads;
  int ranks;
};

class SequenceParallel : public ::testing::TestWithParam<SequenceCase> {};

TEST_P(SequenceParallel, AttentionIsThatOfAllTokens) {
  const SequenceCase& c = GetParam();
  ModelSpec spec = LlamaSpec();
  for (LayerSpec& layer : spec.layers) {
    layer.attention.num_heads = c.heads;
    layer.attention.num_kv_heads = c.kv_heads;
  }
  ASSERT_OK(CheckSequenceParallel(spec, 1, c.ranks));
  const int64_t tokens = 24;
  const int64_t head_dim = 8;
  const at::Tensor cu_seqlens = at::tensor({0, 5, 17, 23, 24}, at::kLong);
  at::manual_seed(3);
  const std::vector<at::Tensor> inputs = {at::randn({tokens, c.heads, head_dim}),
                                          at::randn({tokens, c.kv_heads, head_dim}),
                                          at::randn({tokens, c.kv_heads, head_dim})};
  const at::Tensor weights = at::randn({tokens, c.heads * head_dim});
  AttentionParams params;
  params.scale = 0.35;

  std::vector<at::Tensor> whole_inputs;
  for (const at::Tensor& input : inputs) whole_inputs.push_back(input.clone().requires_grad_());
  PackedAttention whole(cu_seqlens);
  const at::Tensor expected =
      whole.Forward(0, whole_inputs[0], whole_inputs[1], whole_inputs[2], params);
  (expected * weights).sum().backward();

  tandem::testing::LocalWorld world(c.ranks);
  world.Run([&](comm::ProcessGroup& group) {
    const int64_t n = tokens / c.ranks;
    const int64_t first = n * group.rank();
    std::vector<at::Tensor> slices;
    for (const at::Tensor& input : inputs) {
      slices.push_back(input.narrow(0, first, n).clone().requires_grad_());
    }
    PackedAttention all_tokens(cu_seqlens);
    SequenceParallelAttention attention(all_tokens, group);
    const at::Tensor found = attention.Forward(0, slices[0], slices[1], slices[2], params);
    EXPECT_LT(RelativeDifference(found.detach(), expected.detach().narrow(0, first, n)), 1e-5);
    (found * weights.narrow(0, first, n)).sum().backward();
    for (size_t i = 0; i < slices.size(); ++i) {
      EXPECT_LT(RelativeDifference(slices[i].grad(), whole_inputs[i].grad().narrow(0, first, n)),
                1e-5)
          << "input " << i;
    }
  });
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, SequenceParallel,
    ::testing::Values(SequenceCase{"Two", 8, 4, 2}, SequenceCase{"Four", 8, 4, 4},
                      SequenceCase{"Three", 6, 3, 3}, SequenceCase{"MoreRanksThanKvHeads", 8, 2, 4},
                      SequenceCase{"OneKvHead", 6, 1, 3}),
    [](const ::testing::TestParamInfo<SequenceCase>& info) { return info.param.name; });

}  // namespace
}  // namespace tandem::model
