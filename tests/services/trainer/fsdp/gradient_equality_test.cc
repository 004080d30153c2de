// The gradients of the sharded model are those of plain autograd over whole parameters, whatever
// the number of ranks and micro-batches.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/fakes/local_mesh.h"
#include "tests/services/trainer/fsdp/sharded_test_support.h"
#include "tests/support/shared_layers.h"
#include "tests/support/status_matchers.h"

namespace tandem::trainer {
namespace {

constexpr uint64_t kSeed = 11;

struct Case {
  std::string name;
  int ranks = 2;  // that share a copy of the model
  int replicas = 1;
  int tensor = 1;    // ranks that the model is split over
  int sequence = 1;  // of `ranks`, those that share a micro-batch
  int micro_batches = 1;
  int sequences = 6;
  int64_t longest = 9;
  int64_t stride = 1;
  bool tied = false;
  bool qk_norm = false;
  bool bias = true;
  bool checkpointing = false;
  int64_t prefetch = 1;
  int64_t kv_heads = 2;
  bool experts = false;  // in all layers but the first
  model::UnitLimits limits;
  bool reshard = true;
  int64_t prefix = 0;   // tokens that all sequences have in common, computed once
  bool shared = false;  // layers read others' keys and values, and have inputs (shared_layers.h)
  at::ScalarType reduce_dtype = at::kFloat;
  // Values are keys, and normed; experts stand beside dense layers, behind a router with a norm and a
  // factor for each of them.
  bool keys_as_values = false;
};

model::ModelSpec SpecOf(const Case& c) {
  model::ModelSpec spec = SmallSpec();
  spec.tie_word_embeddings = c.tied;
  for (model::LayerSpec& layer : spec.layers) {
    if (c.qk_norm) layer.attention.qk_norm.emplace();
    layer.attention.qkv_bias = c.bias;
    layer.attention.output_bias = c.bias && c.qk_norm;
    layer.feed_forward.bias = c.bias && c.qk_norm;
    layer.attention.num_kv_heads = c.kv_heads;
  }
  for (model::LayerSpec& layer : spec.layers) {
    if (!c.keys_as_values) break;
    layer.norm_placement = model::NormPlacement::kSandwich;
    layer.attention.values_are_keys = true;
    layer.attention.value_norm = model::NormSpec{.weight = false};
  }
  if (c.shared) tandem::testing::ShareLayers(spec);
  for (size_t i = 1; c.experts && i < spec.layers.size(); ++i) {
    // More than a short sequence reaches.
    spec.layers[i].experts = {.num_experts = 12,
                              .intermediate_size = 9,
                              .routing = {.top_k = 2, .normalize = i == 1},
                              .shared_intermediate_size = i == 1 ? 0 : 10};
    if (!c.keys_as_values) continue;
    model::ExpertSpec& experts = *spec.layers[i].experts;
    experts.beside_dense = true;
    experts.routing.norm.emplace();
    experts.routing.logit_scale = 0.5;
    experts.routing.expert_scales = true;
  }
  return spec;
}

class GradientEquality : public ::testing::TestWithParam<Case> {};

TEST_P(GradientEquality, WithPlainAutogradOverWholeParameters) {
  const Case& c = GetParam();
  const model::ModelSpec spec = SpecOf(c);
  std::vector<TokenSequence> sequences =
      RandomSequences(c.sequences, c.longest, spec.vocab_size, 3);
  for (TokenSequence& sequence : sequences) {
    for (int64_t i = 0; i < c.prefix; ++i) sequence.insert(sequence.begin(), i % spec.vocab_size);
  }

  WholeModel whole(spec, kSeed);
  double expected_loss = 0;
  for (const TokenSequence& sequence : sequences) {
    const at::Tensor loss = TestLoss(whole.Forward(Pack({sequence}, c.stride)));
    loss.backward();
    expected_loss += loss.item<double>();
  }
  const std::vector<at::Tensor> whole_gradients = whole.Gradients();

  const int ranks = c.ranks * c.replicas / c.sequence;
  testing::LocalMesh world(
      {.dp_replicate = c.replicas, .dp_shard = c.ranks, .tp = c.tensor, .sequence = c.sequence});
  std::vector<double> losses(ranks);
  world.Run([&](const comm::DeviceMesh& mesh) {
    ShardedModelOptions options;
    options.spec = spec;
    options.mesh = &mesh;
    options.unit_limits = c.limits;
    options.reshard_after_forward = c.reshard;
    options.reduce_dtype = c.reduce_dtype;
    options.activation_checkpointing =
        c.checkpointing ? ActivationCheckpointing::kFull : ActivationCheckpointing::kNone;
    options.prefetch_units = c.prefetch;
    ASSERT_OK_AND_ASSIGN(auto model, ShardedModel::Create(options));
    SetParameters(*model, kSeed);
    // Twice, so that buffers are used again and the second sum replaces the first.
    for (int repeat = 0; repeat < 2; ++repeat) {
      double loss = 0;
      model->ZeroGradients();
      for (const PackedBatch& batch :
           Deal(sequences, mesh.data_rank(), ranks, c.micro_batches, c.stride)) {
        ASSERT_OK_AND_ASSIGN(const double part, model->ForwardBackward(batch, TestLoss));
        loss += part;
      }
      if (mesh.leads_data_rank()) losses[mesh.data_rank()] = loss;
      ASSERT_OK(model->ReduceGradients());
      const std::vector<at::Tensor> actual =
          GatherParameters(*model, mesh.shard(), &UnitShard::grad);
      // Twice as many layers, with norms on both sides, round more.
      const double exact = c.shared ? 4e-5 : 1e-5;
      const double tolerance = c.reduce_dtype == at::kFloat ? exact : 1e-2;
      const std::vector<at::Tensor> expected =
          PartOfParameters(spec, model->transformer().table(), whole_gradients);
      ASSERT_EQ(actual.size(), expected.size());
      for (size_t u = 0; u < actual.size(); ++u) {
        EXPECT_LT(RelativeDifference(actual[u], expected[u]), tolerance)
            << "rank " << mesh.rank() << ", parameter " << u;
      }
    }
    if (c.ranks > 1 && c.reshard && !c.shared && c.limits.max_elements == 0) {
      EXPECT_LE(model->peak_gathered_units(), c.prefetch + 1 + (c.tied ? 1 : 0));
    }
  });
  double loss = 0;
  for (const double part : losses) loss += part;
  EXPECT_NEAR(loss, expected_loss, 1e-5 * std::abs(expected_loss));
}

// One sequence for each rank, so that what each rank computes is one micro-batch of a single rank,
// and the sums differ in their order alone.
TEST(GradientEqualityInBfloat16, OfRanksWithMicroBatchesOfOneRank) {
  for (const bool tied : {false, true}) {
    model::ModelSpec spec = SmallSpec();
    spec.tie_word_embeddings = tied;
    const std::vector<TokenSequence> sequences = RandomSequences(6, 9, spec.vocab_size, 3);
    std::vector<at::Tensor> expected;
    for (const int ranks : {1, 3}) {
      testing::LocalWorld world(ranks);
      world.Run([&](comm::ProcessGroup& group) {
        ShardedModelOptions options;
        options.spec = spec;
        const comm::DeviceMesh mesh(group);
        options.mesh = &mesh;
        options.compute_dtype = at::kBFloat16;
        ASSERT_OK_AND_ASSIGN(auto model, ShardedModel::Create(options));
        SetParameters(*model, kSeed);
        for (const PackedBatch& batch : Deal(sequences, group.rank(), ranks, 6 / ranks)) {
          ASSERT_OK(model->ForwardBackward(batch, TestLoss).status());
        }
        ASSERT_OK(model->ReduceGradients());
        const std::vector<at::Tensor> actual = GatherParameters(*model, group, &UnitShard::grad);
        if (ranks == 1) expected = actual;
        ASSERT_EQ(actual.size(), expected.size());
        for (size_t u = 0; u < actual.size(); ++u) {
          EXPECT_LT(RelativeDifference(actual[u], expected[u]), 1e-6) << "unit " << u;
        }
      });
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, GradientEquality,
    ::testing::Values(
        Case{.name = "TensorTwo", .ranks = 1, .tensor = 2},
        Case{.name = "TensorTwoTied", .ranks = 1, .tensor = 2, .tied = true},
        Case{.name = "TensorThreeAllBiases",
             .ranks = 1,
             .tensor = 3,
             .qk_norm = true,
             .kv_heads = 4},
        Case{.name = "TwoRanksTensorTwo", .ranks = 2, .tensor = 2, .micro_batches = 2},
        Case{.name = "TwoRanksTensorTwoTiedCheckpointing",
             .ranks = 2,
             .tensor = 2,
             .tied = true,
             .checkpointing = true},
        Case{.name = "TwoRanksTensorTwoEmptyBatches",
             .ranks = 2,
             .tensor = 2,
             .micro_batches = 2,
             .sequences = 2},
        Case{.name = "TwoReplicasTwoRanksTensorTwo",
             .ranks = 2,
             .replicas = 2,
             .tensor = 2,
             .qk_norm = true,
             .limits = {.min_elements = 4000, .max_elements = 5000}},
        Case{.name = "SequenceTwo", .ranks = 2, .sequence = 2},
        Case{.name = "SequenceTwoTiedCheckpointing",
             .ranks = 2,
             .sequence = 2,
             .tied = true,
             .checkpointing = true},
        Case{.name = "SequenceTwoLonger", .ranks = 2, .sequence = 2, .longest = 150},
        Case{.name = "SequenceFourSelectedRows", .ranks = 4, .sequence = 4, .stride = 5},
        Case{.name = "SequenceFourFewTokens",
             .ranks = 4,
             .sequence = 4,
             .sequences = 1,
             .longest = 3,
             .kv_heads = 1},
        Case{.name = "FourRanksSequenceTwoEmptyBatches",
             .ranks = 4,
             .sequence = 2,
             .micro_batches = 2,
             .sequences = 3},
        Case{.name = "TwoRanksSequenceTwoTensorTwo",
             .ranks = 2,
             .tensor = 2,
             .sequence = 2,
             .qk_norm = true,
             .kv_heads = 4},
        Case{.name = "ExpertsOneRankMicroBatches", .ranks = 1, .micro_batches = 3, .experts = true},
        Case{.name = "ExpertsThreeRanksEmptyBatches",
             .ranks = 3,
             .micro_batches = 2,
             .sequences = 4,
             .checkpointing = true,
             .experts = true},
        Case{.name = "ExpertsTensorTwo",
             .ranks = 2,
             .tensor = 2,
             .experts = true,
             .limits = {.max_elements = 700}},
        Case{.name = "ExpertsSequenceTwo", .ranks = 2, .sequence = 2, .experts = true},
        Case{.name = "KeysAsValuesTensorTwo",
             .ranks = 1,
             .tensor = 2,
             .qk_norm = true,
             .checkpointing = true,
             .keys_as_values = true},
        Case{.name = "KeysAsValuesExpertsTensorTwo",
             .ranks = 2,
             .tensor = 2,
             .longest = 60,
             .tied = true,
             .experts = true,
             .keys_as_values = true},
        Case{.name = "KeysAsValuesExpertsSequenceTwo",
             .ranks = 2,
             .sequence = 2,
             .qk_norm = true,
             .checkpointing = true,
             .experts = true,
             .keys_as_values = true},
        Case{.name = "SharedOneRankMicroBatches",
             .ranks = 1,
             .micro_batches = 3,
             .longest = 60,
             .shared = true},
        Case{.name = "SharedTwoRanksTiedCheckpointing",
             .ranks = 2,
             .longest = 60,
             .tied = true,
             .qk_norm = true,
             .checkpointing = true,
             .shared = true},
        Case{.name = "SharedThreeRanksEmptyBatches",
             .ranks = 3,
             .micro_batches = 2,
             .sequences = 4,
             .limits = {.max_elements = 700},
             .shared = true},
        Case{.name = "SharedTwoRanksTensorTwo",
             .ranks = 2,
             .tensor = 2,
             .longest = 60,
             .qk_norm = true,
             .checkpointing = true,
             .shared = true},
        Case{.name = "SharedSequenceTwoTensorTwo",
             .ranks = 2,
             .tensor = 2,
             .sequence = 2,
             .longest = 60,
             .qk_norm = true,
             .kv_heads = 4,
             .shared = true},
        Case{.name = "SharedSequenceFourOneKvHead",
             .ranks = 4,
             .sequence = 4,
             .kv_heads = 1,
             .shared = true},
        Case{.name = "SharedWithAPrefixCheckpointing",
             .ranks = 1,
             .longest = 30,
             .checkpointing = true,
             .prefix = 40,
             .shared = true},
        Case{.name = "SharedExpertsTwoRanks", .ranks = 2, .experts = true, .shared = true},
        Case{.name = "OneRank", .ranks = 1},
        Case{.name = "OneRankTiedMicroBatches", .ranks = 1, .micro_batches = 3, .tied = true},
        Case{.name = "OneRankCheckpointing", .ranks = 1, .checkpointing = true},
        Case{.name = "TwoRanks", .ranks = 2},
        Case{.name = "TwoRanksTied", .ranks = 2, .tied = true},
        Case{.name = "TwoRanksCheckpointing", .ranks = 2, .checkpointing = true},
        Case{.name = "TwoRanksTiedCheckpointing", .ranks = 2, .tied = true, .checkpointing = true},
        Case{.name = "TwoRanksNoPrefetch", .ranks = 2, .tied = true, .prefetch = 0},
        Case{.name = "TwoRanksPrefetchThree", .ranks = 2, .prefetch = 3},
        Case{.name = "TwoRanksPrefetchAll", .ranks = 2, .tied = true, .prefetch = 20},
        // Half the embedding, all of it, and nearly everything in one unit.
        Case{.name = "SplitUnits", .ranks = 2, .limits = {.max_elements = 700}},
        Case{.name = "SplitUnitsTied", .ranks = 3, .tied = true, .limits = {.max_elements = 700}},
        Case{.name = "GroupedUnits",
             .ranks = 2,
             .micro_batches = 2,
             .limits = {.min_elements = 3000}},
        Case{.name = "GroupedUnitsTied",
             .ranks = 3,
             .tied = true,
             .checkpointing = true,
             .limits = {.min_elements = 3000}},
        Case{.name = "OneUnit", .ranks = 2, .limits = {.min_elements = 1000000}},
        Case{.name = "OneUnitAlone",
             .ranks = 1,
             .micro_batches = 2,
             .limits = {.min_elements = 1000000}},
        Case{.name = "GroupedAndSplitUnits",
             .ranks = 2,
             .limits = {.min_elements = 4500, .max_elements = 5000}},
        Case{.name = "KeptFromForwardToBackward", .ranks = 2, .tied = true, .reshard = false},
        Case{.name = "KeptAndCheckpointed", .ranks = 2, .checkpointing = true, .reshard = false},
        Case{.name = "ReducedInBfloat16", .ranks = 2, .reduce_dtype = at::kBFloat16},
        Case{.name = "ReducedInBfloat16Tied",
             .ranks = 3,
             .tied = true,
             .reduce_dtype = at::kBFloat16},
        Case{.name = "TwoReplicasOfTwo", .ranks = 2, .replicas = 2, .micro_batches = 2},
        Case{.name = "ThreeReplicasOfTwoTied", .ranks = 2, .replicas = 3, .tied = true},
        Case{.name = "TwoReplicasOfOne", .ranks = 1, .replicas = 2, .micro_batches = 2},
        Case{.name = "ReplicasWithEmptyRanks", .ranks = 2, .replicas = 2, .sequences = 2},
        Case{.name = "ThreeRanks", .ranks = 3},
        Case{.name = "ThreeRanksTiedMicroBatches", .ranks = 3, .micro_batches = 2, .tied = true},
        Case{.name = "ThreeRanksEmptyBatches", .ranks = 3, .micro_batches = 3, .sequences = 4},
        Case{.name = "ThreeRanksTiedEmptyBatches",
             .ranks = 3,
             .micro_batches = 2,
             .sequences = 2,
             .tied = true,
             .checkpointing = true},
        Case{.name = "FourRanks", .ranks = 4, .sequences = 9},
        Case{.name = "FourRanksQkNorm", .ranks = 4, .qk_norm = true, .bias = false},
        Case{.name = "FourRanksAllBiases",
             .ranks = 4,
             .micro_batches = 2,
             .sequences = 9,
             .qk_norm = true},
        Case{.name = "TwoRanksLongerSequences", .ranks = 2, .longest = 150},
        Case{.name = "TwoRanksOneKvHead", .ranks = 2, .kv_heads = 1},
        Case{.name = "TwoRanksAllKvHeads", .ranks = 2, .kv_heads = 4},
        Case{.name = "TwoRanksSelectedRows", .ranks = 2, .stride = 3, .tied = true},
        Case{.name = "ThreeRanksSelectedRows",
             .ranks = 3,
             .micro_batches = 2,
             .stride = 2,
             .checkpointing = true}),
    [](const ::testing::TestParamInfo<Case>& info) { return info.param.name; });

}  // namespace
}  // namespace tandem::trainer
