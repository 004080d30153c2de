// Experts that are whole on one of the ranks each: the log-probs of the whole model.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <memory>

#include "common/model/arena.h"
#include "common/model/packed_arena.h"
#include "common/model/packed_attention.h"
#include "common/model/parallel_fit.h"
#include "common/model/transformer.h"
#include "tests/common/model/split_models.h"
#include "tests/fakes/local_process_group.h"
#include "tests/support/status_matchers.h"

namespace tandem::model {
namespace {

// Log-probs of a batch, without a graph.
at::Tensor LogProbsOf(const Transformer& model, const ParameterProvider& params,
                      const Batch& batch) {
  const at::NoGradGuard no_grad;
  PackedAttention attention(at::tensor(batch.cu_seqlens, at::kLong));
  const Rotary rotary = model.MakeRotary(batch.positions);
  at::Tensor x = model.Embed(params, batch.ids, batch.positions);
  for (int64_t i = 0; i < model.spec().num_layers(); ++i) {
    x = model.Block(params, i, x, rotary, attention);
  }
  const at::Tensor hidden = model.FinalNorm(params, x.index_select(0, batch.rows));
  return model.HeadLogProbs(params, hidden, batch.targets, batch.temperatures).logprobs;
}

class WholeExperts : public ::testing::TestWithParam<SplitCase> {};

TEST_P(WholeExperts, HaveTheLogProbsOfTheWholeModel) {
  const SplitCase& c = GetParam();
  ASSERT_OK(CheckWholeExperts(c.spec, c.ranks));
  const Batch batch = MakeBatch(c.spec);
  const Transformer model(c.spec);
  const std::unique_ptr<Arena> arena = WholeWeights(c.spec, model.table());
  const at::Tensor expected = LogProbsOf(model, *arena, batch);

  tandem::testing::LocalWorld world(c.ranks);
  world.Run([&](comm::ProcessGroup& group) {
    const Transformer split(c.spec, {}, &group, &group);
    const std::unique_ptr<Arena> part = PartOfWeights(*arena, split.table());
    EXPECT_LT(RelativeDifference(LogProbsOf(split, *part, batch), expected), 1e-5);
    // As a rollout holds them, matrices in packed order.
    PackedArena packed(split.table(), at::kFloat);
    packed.CopyFrom(*part);
    EXPECT_LT(RelativeDifference(LogProbsOf(split, packed, batch), expected), 1e-5);
  });
}

TEST_P(WholeExperts, EachExpertIsOnOneRank) {
  const SplitCase& c = GetParam();
  const ParameterTable whole(c.spec);
  int64_t held = 0;
  for (int r = 0; r < c.ranks; ++r) {
    const ParameterTable table(c.spec, {}, {r, c.ranks}, {r, c.ranks, /*of_tensor_ranks=*/true});
    ASSERT_EQ(table.segments().size(), whole.segments().size());
    for (size_t i = 0; i < whole.segments().size(); ++i) {
      const Segment& box = table.segment(table.segments()[i]);
      const Segment& tensor = whole.segment(whole.segments()[i]);
      EXPECT_EQ(box.name, tensor.name);
      if (!whole.parameter(whole.segments()[i].parameter).of_expert) continue;
      EXPECT_TRUE(box.numel == 0 || box.shape == tensor.shape) << tensor.name;
      held += box.numel;
    }
  }
  int64_t expected = 0;
  for (const Parameter& parameter : whole.parameters()) {
    if (parameter.of_expert) expected += parameter.numel;
  }
  EXPECT_EQ(held, expected);
}

ModelSpec With(ModelSpec spec, int64_t num_experts) {
  spec.layers.back().experts->num_experts = num_experts;
  return spec;
}

INSTANTIATE_TEST_SUITE_P(
    Models, WholeExperts,
    ::testing::Values(SplitCase{"OneEach", ExpertsSpec(), 3},
                      SplitCase{"TwoEach", With(ExpertsSpec(), 4), 2},
                      // With so many experts some have no tokens.
                      SplitCase{"Many", With(ExpertsSpec(), 40), 4},
                      SplitCase{"WithBiases", With(ExpertsWithBiasesSpec(), 4), 2}),
    [](const ::testing::TestParamInfo<SplitCase>& info) { return info.param.name; });

}  // namespace
}  // namespace tandem::model
