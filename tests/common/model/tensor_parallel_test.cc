// A model split over ranks against the whole one: log-probs, entropies and the gradient of every
// parameter, for sizes that divide and sizes that do not. Ranks are threads.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "common/model/arena.h"
#include "common/model/packed_arena.h"
#include "common/model/packed_attention.h"
#include "common/model/parallel_fit.h"
#include "common/model/random_init.h"
#include "common/model/segment_box.h"
#include "common/model/sequence_parallel_attention.h"
#include "common/model/tensor_collectives.h"
#include "common/model/transformer.h"
#include "tests/fakes/local_process_group.h"
#include "tests/support/status_matchers.h"
#include "tests/support/varied_layers.h"

namespace tandem::model {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr uint64_t kSeed = 5;

// Odd sizes: 61 vocabulary rows, 27 inner units, 4 key-value heads over 3 ranks.
ModelSpec LlamaSpec() {
  ModelSpec spec;
  spec.architecture = "LlamaForCausalLM";
  spec.vocab_size = 61;
  spec.hidden_size = 24;
  spec.max_position_embeddings = 128;
  spec.initializer_range = 0.2;
  LayerSpec layer;
  layer.feed_forward.intermediate_size = 27;
  layer.attention.num_heads = 8;
  layer.attention.num_kv_heads = 4;
  layer.attention.head_dim = 6;
  spec.layers.assign(2, layer);
  return spec;
}

// Linear attention with 3 key heads, then full attention with a gate.
ModelSpec LinearSpec() {
  ModelSpec spec = LlamaSpec();
  spec.architecture = "Qwen3NextForCausalLM";
  spec.layers.front().attention.delta = DeltaSpec{
      .num_key_heads = 3, .num_value_heads = 6, .key_dim = 8, .value_dim = 5, .kernel_size = 4};
  spec.layers.back().attention.output_gate = true;
  return spec;
}

ModelSpec Qwen2Spec() {
  ModelSpec spec = LlamaSpec();
  spec.architecture = "Qwen2ForCausalLM";
  spec.tie_word_embeddings = true;
  for (LayerSpec& layer : spec.layers) layer.attention.qkv_bias = true;
  return spec;
}

ModelSpec Qwen3Spec() {
  ModelSpec spec = LlamaSpec();
  spec.architecture = "Qwen3ForCausalLM";
  for (LayerSpec& layer : spec.layers) {
    layer.attention.qk_norm.emplace();
    layer.attention.head_dim = 10;
  }
  return spec;
}

ModelSpec AllBiasesSpec() {
  ModelSpec spec = Qwen3Spec();
  spec.tie_word_embeddings = true;
  for (LayerSpec& layer : spec.layers)
    layer.attention.qkv_bias = layer.attention.output_bias = layer.feed_forward.bias = true;
  return spec;
}

ModelSpec VariedSpec() {
  ModelSpec spec = LlamaSpec();
  tandem::testing::VaryLayers(spec);
  return spec;
}

// Latent attention with values of another size than keys; queries with a latent and a bias, or not.
ModelSpec LatentModelSpec(int64_t q_rank) {
  ModelSpec spec = LlamaSpec();
  spec.ropes.front() = {.rotary_dim = 4, .interleaved = q_rank > 0};
  for (LayerSpec& layer : spec.layers) {
    layer.attention.num_kv_heads = layer.attention.num_heads;
    layer.attention.head_dim = 10;
    layer.attention.v_head_dim = 7;
    layer.attention.latent = {.q_rank = q_rank, .kv_rank = 11, .rope_dim = 4, .bias = q_rank > 0};
    layer.attention.output_bias = q_rank > 0;
  }
  return spec;
}

// 3 experts of 7 inner units, so that every expert has tokens; the first layer stays dense.
ModelSpec ExpertsSpec() {
  ModelSpec spec = Qwen3Spec();
  spec.layers.back().experts = {.num_experts = 3,
                                .intermediate_size = 7,
                                .routing = {.top_k = 2, .normalize = true},
                                .shared_intermediate_size = 11};
  return spec;
}

// As DeepSeek-V3's router and gpt-oss' experts, with an ungated shared one.
ModelSpec ExpertsWithBiasesSpec() {
  ModelSpec spec = ExpertsSpec();
  ExpertSpec& experts = *spec.layers.back().experts;
  experts.routing.score = RoutingSpec::Score::kSigmoid;
  experts.routing.bias = experts.routing.correction_bias = true;
  experts.routing.scale = 2.5;
  experts.activation = Activation::kClampedSwiglu;
  experts.bias = experts.shared_bias = true;
  experts.shared_gate = false;
  return spec;
}

// The box that the segment is of its logical tensor.
at::Tensor BoxOf(const Segment& segment, at::Tensor logical) {
  for (size_t d = 0; d < segment.shape.size(); ++d) {
    logical = logical.narrow(static_cast<int64_t>(d), segment.start[d], segment.shape[d]);
  }
  return logical;
}

struct Batch {
  std::vector<int64_t> cu_seqlens = {0, 7, 12, 13, 22};
  at::Tensor ids, positions, rows, targets, temperatures;
};

Batch MakeBatch(const ModelSpec& spec) {
  Batch batch;
  const int64_t n = batch.cu_seqlens.back();
  batch.ids = (at::arange(n) * 17 + 3) % spec.vocab_size;
  batch.positions = PackedPositions(at::tensor(batch.cu_seqlens, at::kLong));
  batch.rows = at::arange(0, n, 2);
  batch.targets = (at::arange(batch.rows.numel()) * 29 + 11) % spec.vocab_size;
  batch.temperatures = 0.7 + 0.1 * at::arange(batch.rows.numel()).to(at::kFloat);
  return batch;
}

// Weights that are nowhere all alike, also in norms and biases.
std::unique_ptr<Arena> WholeWeights(const ModelSpec& spec, const ParameterTable& table) {
  const at::NoGradGuard no_grad;
  auto arena = std::make_unique<Arena>(table, at::kFloat);
  RandomInit(spec, kSeed, *arena);
  for (size_t i = 0; i < table.segments().size(); ++i) {
    at::Tensor segment = arena->SegmentTensor(i);
    const at::Tensor index = at::arange(segment.numel(), at::kDouble);
    segment.add_((index * 0.37 + static_cast<double>(i)).sin().mul(0.02).view(segment.sizes()));
  }
  return arena;
}

std::unique_ptr<Arena> PartOfWeights(const Arena& whole, const ParameterTable& table) {
  const at::NoGradGuard no_grad;
  auto arena = std::make_unique<Arena>(table, at::kFloat);
  for (size_t i = 0; i < table.segments().size(); ++i) {
    arena->SegmentTensor(i).copy_(
        BoxOf(table.segment(table.segments()[i]), whole.SegmentTensor(i)));
  }
  return arena;
}

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

double RelativeDifference(const at::Tensor& found, const at::Tensor& expected) {
  const double largest = expected.abs().max().item<double>();
  return (found - expected).abs().max().item<double>() / largest;
}

struct Case {
  std::string name;
  ModelSpec spec;
  int ranks = 2;
};

class TensorParallelModel : public ::testing::TestWithParam<Case> {};

TEST_P(TensorParallelModel, HasTheLogProbsAndGradientsOfTheWholeModel) {
  const Case& c = GetParam();
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
  const Case& c = GetParam();
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
  const Case& c = GetParam();
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
  const Case& c = GetParam();
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
  const Case& c = GetParam();
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
    ::testing::Values(Case{"LlamaTwo", LlamaSpec(), 2}, Case{"LlamaThree", LlamaSpec(), 3},
                      Case{"LlamaFour", LlamaSpec(), 4}, Case{"Qwen2Two", Qwen2Spec(), 2},
                      Case{"Qwen2Three", Qwen2Spec(), 3}, Case{"Qwen2Four", Qwen2Spec(), 4},
                      Case{"Qwen3Two", Qwen3Spec(), 2}, Case{"Qwen3Three", Qwen3Spec(), 3},
                      Case{"Qwen3Four", Qwen3Spec(), 4}, Case{"AllBiasesTwo", AllBiasesSpec(), 2},
                      Case{"AllBiasesThree", AllBiasesSpec(), 3},
                      Case{"AllBiasesFour", AllBiasesSpec(), 4},
                      Case{"ExpertsTwo", ExpertsSpec(), 2}, Case{"ExpertsThree", ExpertsSpec(), 3},
                      Case{"ExpertsFour", ExpertsSpec(), 4},
                      Case{"LatentTwo", LatentModelSpec(9), 2},
                      Case{"LatentThree", LatentModelSpec(9), 3},
                      Case{"LatentWithoutThatOfQueriesTwo", LatentModelSpec(0), 2},
                      Case{"ExpertsWithBiasesTwo", ExpertsWithBiasesSpec(), 2},
                      Case{"LinearTwo", LinearSpec(), 2}, Case{"LinearThree", LinearSpec(), 3},
                      Case{"VariedTwo", VariedSpec(), 2}, Case{"VariedThree", VariedSpec(), 3}),
    [](const ::testing::TestParamInfo<Case>& info) { return info.param.name; });

TEST(TensorParallelCheck, RefusesMoreRanksThanKeyValueHeads) {
  EXPECT_THAT(
      CheckTensorParallel(LlamaSpec(), 5),
      tandem::testing::StatusIs(absl::StatusCode::kInvalidArgument,
                                AllOf(HasSubstr("5 ranks"), HasSubstr("4 key-value heads"))));
  EXPECT_OK(CheckTensorParallel(LlamaSpec(), 4));
}

TEST(TensorParallelCheck, RefusesMoreRanksThanInnerUnitsOfAnExpert) {
  ModelSpec spec = ExpertsSpec();
  spec.layers.back().experts->intermediate_size = 3;
  EXPECT_THAT(CheckTensorParallel(spec, 4),
              tandem::testing::StatusIs(
                  absl::StatusCode::kInvalidArgument,
                  AllOf(HasSubstr("4 ranks"), HasSubstr("3 inner units of an expert"))));
  spec.layers.back().experts->intermediate_size = 4;
  spec.layers.back().experts->shared_intermediate_size = 3;
  EXPECT_THAT(CheckTensorParallel(spec, 4),
              tandem::testing::StatusIs(absl::StatusCode::kInvalidArgument,
                                        HasSubstr("3 inner units of a shared expert")));
}

TEST(RolloutDeviceCheck, RefusesExpertsOnAGpu) {
  EXPECT_OK(CheckRolloutDevice(ExpertsSpec(), ""));
  EXPECT_OK(CheckRolloutDevice(ExpertsSpec(), "cpu"));
  EXPECT_OK(CheckRolloutDevice(ExpertsSpec(), "auto"));
  EXPECT_OK(CheckRolloutDevice(Qwen3Spec(), "cuda:1"));
  EXPECT_THAT(CheckRolloutDevice(ExpertsSpec(), "cuda:1"),
              tandem::testing::StatusIs(
                  absl::StatusCode::kUnimplemented,
                  AllOf(HasSubstr("rollout.device: cuda:1"), HasSubstr("layer 1 has 3 experts"))));
}

TEST(RolloutDeviceCheck, RefusesLatentAttentionAndValuesOfAnotherSizeOnAGpu) {
  EXPECT_OK(CheckRolloutDevice(LatentModelSpec(9), "auto"));
  EXPECT_THAT(CheckRolloutDevice(LatentModelSpec(9), "cuda"),
              tandem::testing::StatusIs(
                  absl::StatusCode::kUnimplemented,
                  AllOf(HasSubstr("rollout.device: cuda"), HasSubstr("latent attention"))));
  ModelSpec spec = Qwen3Spec();
  for (LayerSpec& layer : spec.layers) layer.attention.v_head_dim = 6;
  EXPECT_OK(CheckRolloutDevice(spec, "cpu"));
  EXPECT_THAT(CheckRolloutDevice(spec, "cuda"),
              tandem::testing::StatusIs(absl::StatusCode::kUnimplemented,
                                        HasSubstr("values of 6 elements and keys of 10")));
}

TEST(TensorParallelCheck, RefusesMoreRanksThanKeyHeadsOfLinearAttention) {
  EXPECT_OK(CheckTensorParallel(LinearSpec(), 3));
  EXPECT_THAT(CheckTensorParallel(LinearSpec(), 4, KvHeadCopies::kAllowed),
              tandem::testing::StatusIs(
                  absl::StatusCode::kInvalidArgument,
                  AllOf(HasSubstr("4 ranks"), HasSubstr("3 key heads of linear attention"))));
}

TEST(ParallelFit, RefusesLinearAttentionOfSharedSequencesAndOnAGpu) {
  EXPECT_OK(CheckTrainerDevice(LlamaSpec(), /*on_gpu=*/true));
  const ModelSpec spec = LinearSpec();
  EXPECT_OK(CheckSequenceParallel(spec, 1, 1));
  EXPECT_OK(CheckTrainerDevice(spec, /*on_gpu=*/false));
  EXPECT_OK(CheckRolloutDevice(spec, "auto"));
  const absl::Status refusals[] = {CheckSequenceParallel(spec, 1, 2),
                                   CheckTrainerDevice(spec, /*on_gpu=*/true),
                                   CheckRolloutDevice(spec, "cuda")};
  for (const absl::Status& refusal : refusals) {
    EXPECT_THAT(refusal, tandem::testing::StatusIs(absl::StatusCode::kUnimplemented,
                                                   HasSubstr("the model has linear attention")));
  }
}

TEST(RolloutDeviceCheck, TakesSlidingWindowsOnAGpu) {
  ModelSpec spec = Qwen3Spec();
  spec.layers.back().attention.window = 8;
  EXPECT_OK(CheckRolloutDevice(spec, "auto"));
  EXPECT_OK(CheckRolloutDevice(spec, "cuda"));
}

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

class WholeExperts : public ::testing::TestWithParam<Case> {};

TEST_P(WholeExperts, HaveTheLogProbsOfTheWholeModel) {
  const Case& c = GetParam();
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
  const Case& c = GetParam();
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

INSTANTIATE_TEST_SUITE_P(Models, WholeExperts,
                         ::testing::Values(Case{"OneEach", ExpertsSpec(), 3},
                                           Case{"TwoEach", With(ExpertsSpec(), 4), 2},
                                           // With so many experts some have no tokens.
                                           Case{"Many", With(ExpertsSpec(), 40), 4},
                                           Case{"WithBiases", With(ExpertsWithBiasesSpec(), 4), 2}),
                         [](const ::testing::TestParamInfo<Case>& info) {
                           return info.param.name;
                         });

TEST(WholeExpertsCheck, RefusesExpertsThatRanksCannotShare) {
  EXPECT_THAT(CheckWholeExperts(ExpertsSpec(), 2),
              tandem::testing::StatusIs(
                  absl::StatusCode::kInvalidArgument,
                  AllOf(HasSubstr("rollout.enable_expert_parallel: layer 1 has 3 experts"),
                        HasSubstr("2 ranks cannot share evenly"))));
  EXPECT_THAT(CheckWholeExperts(LlamaSpec(), 2),
              tandem::testing::StatusIs(absl::StatusCode::kInvalidArgument,
                                        HasSubstr("the model has no experts")));
}

TEST(SequenceParallelCheck, RefusesHeadsThatCannotBeSplit) {
  ModelSpec spec = LlamaSpec();  // 8 heads, 4 key-value heads
  EXPECT_THAT(CheckSequenceParallel(spec, 1, 3),
              tandem::testing::StatusIs(absl::StatusCode::kInvalidArgument,
                                        AllOf(HasSubstr("3 ranks"), HasSubstr("8 query heads"),
                                              HasSubstr("4 key-value heads"))));
  EXPECT_OK(CheckSequenceParallel(spec, 1, 8));
  EXPECT_THAT(
      CheckSequenceParallel(spec, 2, 8),
      tandem::testing::StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("4 query heads")));
}

}  // namespace
}  // namespace tandem::model
