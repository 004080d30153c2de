// A model split over ranks against the whole one: log-probs, entropies and the gradient of every
// parameter, for sizes that divide and sizes that do not. Ranks are threads.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <vector>

#include "common/model/arena.h"
#include "common/model/packed_attention.h"
#include "common/model/parallel_fit.h"
#include "common/model/random_init.h"
#include "common/model/segment_box.h"
#include "common/model/tensor_collectives.h"
#include "common/model/transformer.h"
#include "tests/common/model/split_models.h"
#include "tests/fakes/local_process_group.h"
#include "tests/support/status_matchers.h"

namespace tandem::model {
namespace {

using ::testing::HasSubstr;

// Forward and backward; gradients are left in the arena.
LogProbs Train(const Transformer& model, Arena& arena, const Batch& batch) {
  arena.RequireGrad();
  const at::AutoGradMode grad(true);
  PackedAttention attention(at::tensor(batch.cu_seqlens, at::kLong));
  const Rotary rotary = model.MakeRotary(batch.positions);
  at::Tensor x = model.Embed(arena, batch.ids, batch.positions);
  for (int64_t i = 0; i < model.spec().num_layers(); ++i) {
    x = model.Block(arena, i, x, rotary, attention);
  }
  const at::Tensor hidden = model.FinalNorm(arena, x.index_select(0, batch.rows));
  LogProbs out = model.HeadLogProbs(arena, hidden, batch.targets, batch.temperatures);
  (out.logprobs * at::cos(out.logprobs.detach()) + 0.3 * out.entropy.square()).sum().backward();
  return out;
}

// The gradient of table.segments()[i].
at::Tensor GradientOf(const Arena& arena, size_t i) {
  const ParameterTable::SegmentRef ref = arena.table().segments()[i];
  const Segment& segment = arena.table().segment(ref);
  return arena.Get(ref.parameter).grad().narrow(0, segment.row, segment.shape[0]);
}

class TensorParallelModel : public ::testing::TestWithParam<SplitCase> {};

TEST_P(TensorParallelModel, HasTheLogProbsAndGradientsOfTheWholeModel) {
  const SplitCase& c = GetParam();
  ASSERT_OK(CheckTensorParallel(c.spec, c.ranks));
  const Batch batch = MakeBatch(c.spec);
  const Transformer model(c.spec);
  const std::unique_ptr<Arena> arena = WholeWeights(c.spec, model.table());
  const LogProbs expected = Train(model, *arena, batch);

  tandem::testing::LocalWorld world(c.ranks);
  world.Run([&](comm::ProcessGroup& group) {
    const Transformer split(c.spec, {}, &group);
    const std::unique_ptr<Arena> part = PartOfWeights(*arena, split.table());
    const LogProbs found = Train(split, *part, batch);
    EXPECT_LT(RelativeDifference(found.logprobs, expected.logprobs), 1e-5);
    EXPECT_LT(RelativeDifference(found.entropy, expected.entropy), 1e-5);
    for (size_t i = 0; i < split.table().segments().size(); ++i) {
      const ParameterTable::SegmentRef ref = split.table().segments()[i];
      if (!split.table().parameter(ref.parameter).trainable) continue;
      const Segment& segment = split.table().segment(ref);
      // A scalar's gradient is a sum whose terms nearly cancel.
      const double tolerance = NumElements(segment.global_shape) == 1 ? 1e-4 : 1e-5;
      EXPECT_LT(RelativeDifference(GradientOf(*part, i), BoxOf(segment, GradientOf(*arena, i))),
                tolerance)
          << "rank " << group.rank() << ": " << segment.name;
    }
  });
}

// What every rank holds must stay the same on each, to the last bit, or the copies drift apart.
TEST_P(TensorParallelModel, GivesEveryRankTheSameGradientsOfReplicatedParameters) {
  const SplitCase& c = GetParam();
  const Batch batch = MakeBatch(c.spec);
  const Transformer model(c.spec);
  const std::unique_ptr<Arena> arena = WholeWeights(c.spec, model.table());
  std::vector<std::vector<at::Tensor>> gradients(c.ranks);
  tandem::testing::LocalWorld world(c.ranks);
  world.Run([&](comm::ProcessGroup& group) {
    const Transformer split(c.spec, {}, &group);
    const std::unique_ptr<Arena> part = PartOfWeights(*arena, split.table());
    Train(split, *part, batch);
    for (size_t i = 0; i < split.table().parameters().size(); ++i) {
      const Parameter& parameter = split.table().parameters()[i];
      if (parameter.tensor_parallel.kind != Placement::Kind::kReplicate) continue;
      if (!parameter.trainable) continue;
      gradients[group.rank()].push_back(part->Get(static_cast<int>(i)).grad());
    }
  });
  for (int r = 1; r < c.ranks; ++r) {
    ASSERT_EQ(gradients[r].size(), gradients[0].size());
    for (size_t i = 0; i < gradients[0].size(); ++i) {
      EXPECT_TRUE(at::equal(gradients[r][i], gradients[0][i])) << "rank " << r;
    }
  }
}

TEST_P(TensorParallelModel, HasBoxesThatCoverEveryTensorOnce) {
  const SplitCase& c = GetParam();
  const ParameterTable whole(c.spec);
  for (size_t i = 0; i < whole.segments().size(); ++i) {
    const Segment& tensor = whole.segment(whole.segments()[i]);
    const Placement placement = whole.parameter(whole.segments()[i].parameter).tensor_parallel;
    at::Tensor count = at::zeros({tensor.numel}, at::kInt);
    for (int r = 0; r < c.ranks; ++r) {
      const ParameterTable table(c.spec, {}, {r, c.ranks});
      const Segment& box = table.segment(table.segments()[i]);
      EXPECT_EQ(box.name, tensor.name);
      EXPECT_EQ(box.global_shape, tensor.shape);
      int64_t next = 0;
      ASSERT_OK(ForRunsOfBox(box, 0, box.numel, [&](const BoxRun& run) {
        EXPECT_EQ(run.local, next);
        next += run.count;
        count.narrow(0, run.logical, run.count).add_(1);
        return absl::OkStatus();
      }));
      EXPECT_EQ(next, box.numel);
    }
    const int expected = placement.kind == Placement::Kind::kReplicate ? c.ranks : 1;
    EXPECT_TRUE(at::equal(count, at::full_like(count, expected))) << tensor.name;
  }
}

TEST_P(TensorParallelModel, FindsTheRunsOfAnyPieceOfATensor) {
  const SplitCase& c = GetParam();
  const ParameterTable table(c.spec, {}, {c.ranks - 1, c.ranks});
  for (const ParameterTable::SegmentRef ref : table.segments()) {
    const Segment& box = table.segment(ref);
    int64_t numel = 1;
    for (const int64_t size : box.global_shape) numel *= size;
    const at::Tensor logical = at::arange(numel).view(box.global_shape);
    const at::Tensor local = BoxOf(box, logical).contiguous().flatten();
    int64_t found = 0;
    for (int64_t first = 0; first < numel; first += 7) {
      const int64_t count = std::min<int64_t>(7, numel - first);
      ASSERT_OK(ForRunsOfTensor(box, first, count, [&](const BoxRun& run) {
        EXPECT_GE(run.logical, first);
        EXPECT_LE(run.logical + run.count, first + count);
        EXPECT_TRUE(at::equal(local.narrow(0, run.local, run.count),
                              at::arange(run.logical, run.logical + run.count)));
        found += run.count;
        return absl::OkStatus();
      }));
    }
    EXPECT_EQ(found, box.numel) << box.name;
  }
}

TEST_P(TensorParallelModel, DrawsTheValuesOfTheWholeModel) {
  const SplitCase& c = GetParam();
  const ParameterTable table(c.spec);
  Arena whole(table, at::kFloat);
  RandomInit(c.spec, kSeed, whole);
  for (int r = 0; r < c.ranks; ++r) {
    const ParameterTable part_table(c.spec, {}, {r, c.ranks});
    Arena part(part_table, at::kFloat);
    RandomInit(c.spec, kSeed, part);
    for (size_t i = 0; i < table.segments().size(); ++i) {
      const Segment& segment = part_table.segment(part_table.segments()[i]);
      EXPECT_TRUE(at::equal(part.SegmentTensor(i), BoxOf(segment, whole.SegmentTensor(i))))
          << segment.name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, TensorParallelModel,
    ::testing::Values(
        SplitCase{"LlamaTwo", LlamaSpec(), 2}, SplitCase{"LlamaThree", LlamaSpec(), 3},
        SplitCase{"LlamaFour", LlamaSpec(), 4}, SplitCase{"Qwen2Two", Qwen2Spec(), 2},
        SplitCase{"Qwen2Three", Qwen2Spec(), 3}, SplitCase{"Qwen2Four", Qwen2Spec(), 4},
        SplitCase{"Qwen3Two", Qwen3Spec(), 2}, SplitCase{"Qwen3Three", Qwen3Spec(), 3},
        SplitCase{"Qwen3Four", Qwen3Spec(), 4}, SplitCase{"AllBiasesTwo", AllBiasesSpec(), 2},
        SplitCase{"AllBiasesThree", AllBiasesSpec(), 3},
        SplitCase{"AllBiasesFour", AllBiasesSpec(), 4}, SplitCase{"ExpertsTwo", ExpertsSpec(), 2},
        SplitCase{"ExpertsThree", ExpertsSpec(), 3}, SplitCase{"ExpertsFour", ExpertsSpec(), 4},
        SplitCase{"LatentTwo", LatentModelSpec(9), 2},
        SplitCase{"LatentThree", LatentModelSpec(9), 3},
        SplitCase{"LatentWithoutThatOfQueriesTwo", LatentModelSpec(0), 2},
        SplitCase{"ExpertsWithBiasesTwo", ExpertsWithBiasesSpec(), 2},
        SplitCase{"LinearTwo", LinearSpec(), 2}, SplitCase{"LinearThree", LinearSpec(), 3},
        SplitCase{"VariedTwo", VariedSpec(), 2}, SplitCase{"VariedThree", VariedSpec(), 3}),
    [](const ::testing::TestParamInfo<SplitCase>& info) { return info.param.name; });

TEST(TensorParallelFailure, OfACollectiveIsThrownWithItsStatus) {
  const ModelSpec spec = Qwen3Spec();
  const Transformer model(spec);
  const std::unique_ptr<Arena> arena = WholeWeights(spec, model.table());
  tandem::testing::LocalWorld world(2);
  world.Run([&](comm::ProcessGroup& group) {
    const Transformer split(spec, {}, &group);
    const std::unique_ptr<Arena> part = PartOfWeights(*arena, split.table());
    // Forward of a layer as usual; then a rank leaves before the backward pass.
    part->RequireGrad();
    const Batch batch = MakeBatch(spec);
    PackedAttention attention(at::tensor(batch.cu_seqlens, at::kLong));
    const at::Tensor x = at::ones({batch.ids.numel(), spec.hidden_size});
    const at::Tensor out = split.Block(*part, 0, x, split.MakeRotary(batch.positions), attention);
    ASSERT_OK(group.Barrier("forward is done"));
    if (group.rank() == 1) {
      group.Abort("rank 1 is gone");
      return;
    }
    while (group.status().ok()) std::this_thread::yield();
    try {
      out.sum().backward();
      ADD_FAILURE() << "expected the collective's error";
    } catch (const CollectiveError& e) {
      EXPECT_THAT(e.status(), tandem::testing::StatusIs(absl::StatusCode::kAborted,
                                                        HasSubstr("rank 1 is gone")));
    }
  });
}

}  // namespace
}  // namespace tandem::model
