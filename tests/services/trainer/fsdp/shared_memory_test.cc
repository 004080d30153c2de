// What the plan predicts of a rank that trains a model whose layers read more than the stream beside what
// LibTorch allocates.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/services/trainer/fsdp/sharded_test_support.h"
#include "tests/services/trainer/fsdp/training_memory.h"
#include "tests/support/shared_layers.h"
#include "tools/tandem/plan/batch_plan.h"
#include "tools/tandem/plan/rank_memory.h"

namespace tandem::trainer {
namespace {

constexpr int64_t kSequences = 4;
constexpr int64_t kLength = 256;  // tokens that the model sees

struct Case {
  const char* name;
  int64_t window = 0;      // of layers that share keys and values; 0: none do
  int64_t input_size = 0;  // 0: layers have no inputs
  at::ScalarType dtype = at::kFloat;
  ActivationCheckpointing checkpointing = ActivationCheckpointing::kNone;
  std::vector<std::string> frozen;
  int64_t vocab_size = 2048;
};

// Sizes at which tensors can be told from bookkeeping.
model::ModelSpec SpecOf(const Case& c) {
  model::ModelSpec spec;
  spec.architecture = "Qwen3ForCausalLM";
  spec.vocab_size = c.vocab_size;
  spec.hidden_size = 128;
  spec.max_position_embeddings = 4096;
  model::LayerSpec layer;
  layer.feed_forward.intermediate_size = 384;
  layer.attention.num_heads = 8;
  layer.attention.num_kv_heads = 4;
  layer.attention.head_dim = 16;
  layer.attention.qk_norm.emplace();
  spec.layers.assign(4, layer);
  if (c.window > 0) tandem::testing::ShareKeys(spec, c.window);
  if (c.input_size > 0) tandem::testing::AddLayerInputs(spec, c.input_size);
  return spec;
}

class SharedMemory : public ::testing::TestWithParam<Case> {};

int64_t Measured(const Case& c) {
  ShardedModelOptions options;
  options.spec = SpecOf(c);
  options.compute_dtype = c.dtype;
  options.activation_checkpointing = c.checkpointing;
  options.unit_limits.frozen_parameters = c.frozen;
  return TrainingPeak(std::move(options), [] {
    std::vector<TokenSequence> sequences;  // without a common prefix
    for (int64_t s = 0; s < kSequences; ++s) sequences.emplace_back(kLength + 1, 7 + s);
    return Pack(sequences);
  });
}

plan::MemorySnapshot Predicted(const Case& c) {
  setup::RankSetup setup;
  setup.element_bytes = c.dtype == at::kFloat ? 4 : 2;
  setup.unit_limits.frozen_parameters = c.frozen;
  if (c.checkpointing == ActivationCheckpointing::kFull) {
    setup.checkpointing = config::v1::ACTIVATION_CHECKPOINTING_FULL;
  } else if (c.checkpointing == ActivationCheckpointing::kSelective) {
    setup.checkpointing = config::v1::ACTIVATION_CHECKPOINTING_SELECTIVE;
  }
  const plan::RankWorkload work =
      plan::SupervisedWorkload(kSequences, kLength, kSequences * kLength);
  return plan::PredictRankMemory(SpecOf(c), setup, work).peak;
}

TEST_P(SharedMemory, IsWithinAHundredthOfThePrediction) {
  ExpectPredicted(Predicted(GetParam()), Measured(GetParam()), 0.01);
}

constexpr auto kFull = ActivationCheckpointing::kFull;
constexpr auto kSelective = ActivationCheckpointing::kSelective;

INSTANTIATE_TEST_SUITE_P(
    Layers, SharedMemory,
    ::testing::Values(
        Case{.name = "SharedKeys", .window = 64},
        Case{.name = "SharedKeysInBfloat16", .window = 64, .dtype = at::kBFloat16},
        Case{.name = "SharedKeysCheckpointed", .window = 64, .checkpointing = kFull},
        Case{.name = "SharedKeysSelective", .window = 64, .checkpointing = kSelective},
        Case{.name = "SharedKeysOfFrozenLayers",
             .window = 64,
             .frozen = {"model.embed_tokens.weight", "*layers.0.*", "*layers.1.*"}},
        Case{.name = "Inputs", .input_size = 32},
        Case{.name = "InputsInBfloat16", .input_size = 32, .dtype = at::kBFloat16},
        Case{.name = "InputsCheckpointed", .input_size = 32, .checkpointing = kFull},
        Case{.name = "InputsSelectiveInBfloat16",
             .input_size = 32,
             .dtype = at::kBFloat16,
             .checkpointing = kSelective},
        Case{.name = "InputsOfAFrozenTable",
             .input_size = 32,
             .frozen = {"model.embed_tokens_per_layer.weight"}},
        // Inputs that take as much memory as the rest.
        Case{.name = "LargeInputs", .input_size = 128, .vocab_size = 64},
        Case{.name = "LargeInputsCheckpointed",
             .input_size = 128,
             .checkpointing = kFull,
             .vocab_size = 64},
        Case{.name = "LargeInputsCheckpointedInBfloat16",
             .input_size = 128,
             .dtype = at::kBFloat16,
             .checkpointing = kFull,
             .vocab_size = 64},
        // A table so large that the peak is where its gradient is.
        Case{.name = "LargeTable", .input_size = 256, .checkpointing = kFull, .vocab_size = 8192},
        Case{.name = "LargeTableInBfloat16",
             .input_size = 256,
             .dtype = at::kBFloat16,
             .vocab_size = 8192},
        Case{.name = "Both", .window = 64, .input_size = 32},
        Case{.name = "BothCheckpointedInBfloat16",
             .window = 64,
             .input_size = 32,
             .dtype = at::kBFloat16,
             .checkpointing = kFull}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace tandem::trainer
