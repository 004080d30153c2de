// The trainer's log-probs of a sequence are those of the sequence alone, bit for bit, however
// ranks, packing, checkpointing and gradients are arranged; so they are the rollout's, which the
// tests of the rollout's engine hold against the same. On EXACT_DEVICE, the CPU or a GPU.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "common/model/numerics.h"
#include "services/trainer/fsdp/sharded_model.h"
#include "tests/fakes/local_mesh.h"
#include "tests/services/trainer/fsdp/sharded_test_support.h"
#include "tests/support/cuda_device.h"
#include "tests/support/shared_layers.h"
#include "tests/support/status_matchers.h"

namespace tandem::trainer {
namespace {

const at::Device kDevice(EXACT_DEVICE);
constexpr uint64_t kSeed = 2;
#ifdef TANDEM_EMULATED_GPU  // emulated_gpu/model.cc: some hundred times slower
constexpr int kNumSequences = 13;
constexpr int kLongest = 24;
#else
constexpr int kNumSequences = 24;
constexpr int kLongest = 120;
#endif

// The weights that a rollout would hold: the masters, rounded to the compute type.
class RolloutWeights : public model::ParameterProvider {
 public:
  RolloutWeights(const model::ModelSpec& spec, at::ScalarType dtype) {
    const WholeModel whole(spec, kSeed);
    for (const at::Tensor& parameter : whole.parameters()) {
      parameters_.push_back(parameter.detach().to(kDevice, dtype));
    }
  }
  const at::Tensor& Get(int index) const override { return parameters_[index]; }

 private:
  std::vector<at::Tensor> parameters_;
};

// Log-probs and entropies of the batch's rows.
model::LogProbs Plain(const model::Transformer& transformer, const model::ParameterProvider& params,
                      const PackedBatch& batch) {
  const at::NoGradGuard no_grad;
  model::PackedAttention attention(at::tensor(batch.cu_seqlens, at::kLong));
  const at::Tensor positions = batch.positions.to(kDevice);
  const model::Rotary rotary = transformer.MakeRotary(positions);
  const at::Tensor x =
      transformer.Blocks(params, batch.token_ids.to(kDevice), positions, rotary, attention);
  const at::Tensor hidden =
      transformer.FinalNorm(params, x.index_select(0, batch.rows.to(kDevice)));
  return transformer.HeadLogProbs(params, hidden, batch.targets.to(kDevice),
                                  batch.temperatures.to(kDevice));
}

// Linear attention in the first layer, a gate on what the last one yields.
model::ModelSpec LinearSpec() {
  model::ModelSpec spec = SmallSpec();
  spec.layers.front().attention.delta = model::DeltaSpec{
      .num_key_heads = 2, .num_value_heads = 4, .key_dim = 12, .value_dim = 20, .kernel_size = 4};
  spec.layers.back().attention.output_gate = true;
  return spec;
}

model::ModelSpec ExpertsSpec() {
  model::ModelSpec spec = SmallSpec();
  for (size_t i = 1; i < spec.layers.size(); ++i) {
    spec.layers[i].experts = {.num_experts = 7,
                              .intermediate_size = 24,
                              .routing = {.top_k = 3, .normalize = true},
                              .shared_intermediate_size = 12};
  }
  return spec;
}

// Values are smaller than keys.
model::ModelSpec LatentSpec() {
  model::ModelSpec spec = SmallSpec();
  spec.ropes.front() = {.rotary_dim = 4, .interleaved = true};
  for (model::LayerSpec& layer : spec.layers) {
    layer.attention.qkv_bias = false;
    layer.attention.num_kv_heads = layer.attention.num_heads;
    layer.attention.head_dim = 12;
    layer.attention.v_head_dim = 8;
    layer.attention.latent = model::LatentSpec{.q_rank = 10, .kv_rank = 16, .rope_dim = 4};
  }
  return spec;
}

// Layers that read other layers' keys and values, and inputs of their own.
model::ModelSpec SharedSpec() {
  model::ModelSpec spec = SmallSpec();
  tandem::testing::ShareLayers(spec);
  return spec;
}

struct ExactCase {
  const char* name;
  at::ScalarType dtype = at::kFloat;
  comm::MeshShape mesh;
  ActivationCheckpointing checkpointing = ActivationCheckpointing::kNone;
  model::ModelSpec (*spec)() = &SmallSpec;
};

class ExactLogProbsTest : public ::testing::TestWithParam<ExactCase> {
 protected:
  void SetUp() override {
    if (kDevice.is_cuda()) TANDEM_SKIP_WITHOUT_CUDA();
    if (kDevice.is_cuda() && GetParam().mesh.size() > 1) GTEST_SKIP() << "ranks need a GPU each";
    model::SetNumerics(model::Numerics::kExact);
  }
  void TearDown() override { model::SetNumerics(model::Numerics::kFast); }
};

TEST_P(ExactLogProbsTest, AreThoseOfEachSequenceAlone) {
  const model::ModelSpec spec = GetParam().spec();
  const std::vector<TokenSequence> sequences =
      RandomSequences(kNumSequences, kLongest, spec.vocab_size, 5);
  const model::Transformer transformer(spec);
  const RolloutWeights weights(spec, GetParam().dtype);
  std::vector<at::Tensor> alone;
  for (const TokenSequence& sequence : sequences) {
    alone.push_back(Plain(transformer, weights, Pack({sequence}, 2)).logprobs);
  }
  const int ranks = GetParam().mesh.num_data_ranks();
  testing::LocalMesh world(GetParam().mesh);
  world.Run([&](const comm::DeviceMesh& mesh) {
    ShardedModelOptions options;
    options.spec = spec;
    options.mesh = &mesh;
    options.compute_dtype = GetParam().dtype;
    options.device = kDevice;
    options.activation_checkpointing = GetParam().checkpointing;
    ASSERT_OK_AND_ASSIGN(auto model, ShardedModel::Create(options));
    SetParameters(*model, kSeed);
    constexpr int kMicroBatches = 3;
    const auto batches = Deal(sequences, mesh.data_rank(), ranks, kMicroBatches, 2);
    for (int m = 0; m < kMicroBatches; ++m) {
      std::vector<at::Tensor> of_batch;
      for (size_t i = 0; i < sequences.size(); ++i) {
        if (static_cast<int>(i) % (ranks * kMicroBatches) == m * ranks + mesh.data_rank()) {
          of_batch.push_back(alone[i]);
        }
      }
      const at::Tensor expected = at::cat(of_batch);
      ASSERT_OK_AND_ASSIGN(const model::LogProbs scored, model->Forward(batches[m]));
      EXPECT_TRUE(at::equal(scored.logprobs, expected)) << "scored, micro-batch " << m;
      const auto loss = [&](const model::LogProbs& trained) {
        EXPECT_TRUE(at::equal(trained.logprobs, expected)) << "trained on, micro-batch " << m;
        EXPECT_TRUE(at::equal(trained.entropy, scored.entropy)) << "entropy, micro-batch " << m;
        return TestLoss(trained);
      };
      ASSERT_OK(model->ForwardBackward(batches[m], loss).status());
    }
  });
}

INSTANTIATE_TEST_SUITE_P(
    Meshes, ExactLogProbsTest,
    ::testing::Values(
        ExactCase{"float32", at::kFloat, {}}, ExactCase{"bfloat16", at::kBFloat16, {}},
        ExactCase{"shards", at::kFloat, {.dp_shard = 3}},
        ExactCase{"bfloat16_shards", at::kBFloat16, {.dp_shard = 2}},
        ExactCase{"copies", at::kBFloat16, {.dp_replicate = 2, .dp_shard = 2}},
        ExactCase{"sequence_parallel", at::kFloat, {.dp_shard = 2, .sequence = 2}},
        ExactCase{"bfloat16_sequence_parallel", at::kBFloat16, {.dp_shard = 4, .sequence = 2}},
        ExactCase{"full_checkpointing", at::kBFloat16, {}, ActivationCheckpointing::kFull},
        ExactCase{"selective_checkpointing", at::kFloat, {}, ActivationCheckpointing::kSelective},
        ExactCase{"latent", at::kFloat, {}, ActivationCheckpointing::kSelective, &LatentSpec},
        ExactCase{
            "bfloat16_latent", at::kBFloat16, {}, ActivationCheckpointing::kNone, &LatentSpec},
        ExactCase{"experts", at::kFloat, {}, ActivationCheckpointing::kNone, &ExpertsSpec},
        ExactCase{
            "bfloat16_experts", at::kBFloat16, {}, ActivationCheckpointing::kFull, &ExpertsSpec},
        ExactCase{
            "linear_selective", at::kFloat, {}, ActivationCheckpointing::kSelective, &LinearSpec},
        ExactCase{
            "linear_bfloat16_full", at::kBFloat16, {}, ActivationCheckpointing::kFull, &LinearSpec},
        ExactCase{
            "shared_selective", at::kFloat, {}, ActivationCheckpointing::kSelective, &SharedSpec},
        ExactCase{
            "shared_bfloat16_full", at::kBFloat16, {}, ActivationCheckpointing::kFull, &SharedSpec},
        ExactCase{"shared_sequence_parallel",
                  at::kBFloat16,
                  {.dp_shard = 4, .sequence = 2},
                  ActivationCheckpointing::kNone,
                  &SharedSpec},
        ExactCase{"linear_shards",
                  at::kBFloat16,
                  {.dp_shard = 2},
                  ActivationCheckpointing::kNone,
                  &LinearSpec}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace tandem::trainer
