#include "tools/tandem/plan/layer_profile.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/support/varied_layers.h"
#include "tools/tandem/plan/layer_memory.h"

namespace tandem::plan {
namespace {

using sharding::Saves;

model::ModelSpec ThreeLayers() {
  model::ModelSpec spec;
  spec.architecture = "Qwen3ForCausalLM";
  spec.vocab_size = 512;
  spec.hidden_size = 64;
  model::LayerSpec layer;
  layer.feed_forward.intermediate_size = 192;
  layer.attention.num_heads = 4;
  layer.attention.num_kv_heads = 2;
  layer.attention.head_dim = 16;
  layer.attention.qk_norm.emplace();
  spec.layers.assign(3, layer);
  spec.layers[2].feed_forward.intermediate_size = 320;
  return spec;
}

struct Passes {
  MemoryLedger ledger;
  std::vector<MemorySnapshot> sums;  // after each layer, forward and back
};

// Runs all layers forward, then back, as ShardedMemory does. `run(ledger, layer, saves)` returns
// something with Forward() and Backward(gradient).
template <typename Run>
void RunAll(Passes& passes, const CountedBatch& batch, Saves saves, int64_t num_layers, Run run) {
  const int64_t bytes = batch.Bytes(batch.hidden);
  auto layers = std::vector<decltype(run(passes.ledger, 0, saves))>();
  Size x = passes.ledger.Take(MemoryKind::kActivations, bytes);
  for (int64_t i = 0; i < num_layers; ++i) {
    passes.ledger.SetPlace("forward of " + std::to_string(i));
    layers.push_back(run(passes.ledger, i, saves));
    x = layers.back()->Forward(x);
    passes.sums.push_back(passes.ledger.now());
  }
  if (saves == Saves::kNothing) return;
  Size gradient = passes.ledger.Take(MemoryKind::kActivations, bytes);
  x.reset();
  for (int64_t i = num_layers - 1; i >= 0 && gradient != nullptr; --i) {
    passes.ledger.SetPlace("backward of " + std::to_string(i));
    std::vector<Size> gradients = layers.back()->Backward(gradient);
    gradient = std::move(gradients.back());
    gradients.pop_back();
    layers.pop_back();
    passes.sums.push_back(passes.ledger.now());
  }
}

// LayerReplay with the arguments of LayerMemory.
struct Replay {
  Size Forward(const Size& x) { return layer.Forward(x); }
  std::vector<Size> Backward(const Size&) { return layer.Backward(); }
  LayerReplay layer;
};

class LayerProfileOf : public ::testing::TestWithParam<bool> {};

TEST_P(LayerProfileOf, ReplaysThePeaksAndSumsOfTheOperations) {
  model::ModelSpec spec = ThreeLayers();
  if (GetParam()) tandem::testing::VaryLayers(spec);
  const std::vector<std::vector<std::string>> frozen = {
      {}, {"*norm.weight"}, {"model.embed_tokens.weight", "*layers.0*"}, {"*mlp*"}};
  for (const std::vector<std::string>& patterns : frozen) {
    for (const int tensor_ranks : {1, 2}) {
      for (const setup::Kernels kernels : {setup::Kernels::kCpu, setup::Kernels::kPlain}) {
        for (const Saves saves : {Saves::kNothing, Saves::kSelected, Saves::kEverything}) {
          const model::ParameterTable table(spec, {.frozen_parameters = patterns},
                                            {0, tensor_ranks});
          const CountedBatch batch = {.tokens = 96,
                                      .attention_tokens = 96,
                                      .longest_sequence = 96,
                                      .hidden = spec.hidden_size,
                                      .element_bytes = 2,
                                      .tensor_ranks = tensor_ranks,
                                      .kernels = kernels};
          Passes expected;
          RunAll(expected, batch, saves, spec.num_layers(),
                 [&](MemoryLedger& ledger, int64_t i, Saves of_layer) {
                   return std::make_unique<LayerMemory>(ledger, table, batch, spec.layers[i], i,
                                                        of_layer);
                 });
          LayerProfiles profiles(spec, table, batch);
          Passes actual;
          RunAll(actual, batch, saves, spec.num_layers(),
                 [&](MemoryLedger& ledger, int64_t i, Saves of_layer) {
                   return std::make_unique<Replay>(
                       Replay{LayerReplay(ledger, profiles.Of(i, of_layer))});
                 });

          EXPECT_EQ(actual.ledger.peak().bytes, expected.ledger.peak().bytes);
          EXPECT_EQ(actual.ledger.peak().place, expected.ledger.peak().place);
          ASSERT_EQ(actual.sums.size(), expected.sums.size());
          for (size_t i = 0; i < expected.sums.size(); ++i) {
            EXPECT_EQ(actual.sums[i].bytes, expected.sums[i].bytes) << "pass " << i;
          }
          EXPECT_EQ(actual.ledger.now().total(), 0);
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Layers, LayerProfileOf, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "Varied" : "Alike"; });

TEST(LayerProfile, IsMadeOnceForLayersThatAreAlike) {
  const model::ModelSpec spec = ThreeLayers();
  const CountedBatch batch = {.tokens = 8, .attention_tokens = 8, .hidden = spec.hidden_size};
  const model::ParameterTable table(spec);
  LayerProfiles profiles(spec, table, batch);
  EXPECT_EQ(&profiles.Of(0, Saves::kEverything), &profiles.Of(1, Saves::kEverything));
  EXPECT_NE(&profiles.Of(0, Saves::kEverything), &profiles.Of(0, Saves::kNothing));
  EXPECT_NE(&profiles.Of(0, Saves::kEverything), &profiles.Of(2, Saves::kEverything));

  const model::ParameterTable partly(spec, {.frozen_parameters = {"*layers.1.*norm.weight"}});
  LayerProfiles of_partly(spec, partly, batch);
  EXPECT_NE(&of_partly.Of(0, Saves::kEverything), &of_partly.Of(1, Saves::kEverything));
}

}  // namespace
}  // namespace tandem::plan
