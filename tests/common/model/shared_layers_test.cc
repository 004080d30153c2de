// Layers that read other layers' keys and values, and layers with inputs of their own: what the table
// declares, what is refused, and the forward pass and its gradients beside plain operations in float64.
#include "tests/support/shared_layers.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "common/model/cache_groups.h"
#include "common/model/carried_tensors.h"
#include "common/model/model_cache.h"
#include "common/model/packed_attention.h"
#include "common/model/parallel_fit.h"
#include "common/model/random_init.h"
#include "common/model/transformer.h"
#include "tests/support/status_matchers.h"

namespace tandem::model {
namespace {

using ::tandem::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

ModelSpec Plain() {
  ModelSpec spec;
  spec.architecture = "Qwen3ForCausalLM";
  spec.vocab_size = 61;
  spec.hidden_size = 48;
  spec.max_position_embeddings = 512;
  spec.initializer_range = 0.2;
  LayerSpec layer;
  layer.feed_forward.intermediate_size = 80;
  layer.attention.num_heads = 4;
  layer.attention.num_kv_heads = 2;
  layer.attention.head_dim = 16;
  layer.attention.qk_norm.emplace();
  spec.layers.assign(2, layer);
  return spec;
}

ModelSpec Shared() {
  ModelSpec spec = Plain();
  tandem::testing::ShareLayers(spec);
  return spec;
}

TEST(CarriedTensors, AreKeysAndValuesByMakerThenInputsByLayer) {
  EXPECT_TRUE(CarriedTensorsOf(Plain()).empty());
  const std::vector<CarriedTensor> carried = CarriedTensorsOf(Shared());
  ASSERT_EQ(carried.size(), 2 + 6);
  using Kind = CarriedTensor::Kind;
  EXPECT_EQ(carried[0], (CarriedTensor{Kind::kKeysAndValues, 2, {4, 6}}));
  EXPECT_EQ(carried[1], (CarriedTensor{Kind::kKeysAndValues, 3, {5}}));
  for (int layer = 0; layer < 6; ++layer) {
    EXPECT_EQ(carried[2 + layer], (CarriedTensor{Kind::kLayerInput, 0, {layer + 1}}));
  }
  ModelSpec seeing = Plain();
  seeing.vision.emplace().deepstack_layers = {1, 3};
  EXPECT_THAT(CarriedTensorsOf(seeing), ElementsAre(CarriedTensor{Kind::kImageRows, 0, {1}},
                                                    CarriedTensor{Kind::kImageRows, 0, {2}}));
  EXPECT_OK(CheckCarriedTensors(Plain()));
  EXPECT_OK(CheckCarriedTensors(Shared()));
}

TEST(CarriedTensors, OfLayersThatDoNotFitAreRefused) {
  const auto refused = [](auto change) {
    ModelSpec spec = Shared();
    change(spec);
    return CheckCarriedTensors(spec);
  };
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  EXPECT_THAT(refused([](ModelSpec& spec) { spec.layers[4].attention.kv_layer = 4; }),
              StatusIs(kInvalid, HasSubstr("layer 4 reads the keys and values of layer 4, which is "
                                           "not before it")));
  EXPECT_THAT(
      refused([](ModelSpec& spec) { spec.layers[5].attention.kv_layer = 3; }),
      StatusIs(kInvalid, HasSubstr("layer 5 reads the keys and values of layer 3, which has "
                                   "none of its own")));
  EXPECT_THAT(refused([](ModelSpec& spec) { spec.layers[4].attention.kv_layer = 1; }),
              StatusIs(kInvalid, HasSubstr("2 key-value heads with 16 and 16 elements; expected 2 "
                                           "with 32 and 32")));
  EXPECT_THAT(refused([](ModelSpec& spec) { spec.layers[3].attention.rope = 1; }),
              StatusIs(kInvalid, HasSubstr("rotates them otherwise")));
  EXPECT_THAT(refused([](ModelSpec& spec) { spec.layers[5].attention.window = 19; }),
              StatusIs(kInvalid, HasSubstr("has another window")));
  EXPECT_THAT(refused([](ModelSpec& spec) {
                spec.layers[3].attention.qk_norm->over = QkNormSpec::Over::kAllHeads;
              }),
              StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("norms of all heads at once")));
  EXPECT_THAT(refused([](ModelSpec& spec) { spec.layers[2].input_gate->size = 13; }),
              StatusIs(kInvalid, HasSubstr("layer 2 takes an input of 13 elements; the model makes "
                                           "one of 12")));
  EXPECT_THAT(refused([](ModelSpec& spec) { spec.layers[2].input_gate.reset(); }),
              StatusIs(kInvalid, HasSubstr("layer 2 takes an input of 0 elements")));
  EXPECT_THAT(refused([](ModelSpec& spec) { spec.layer_inputs.reset(); }),
              StatusIs(kInvalid, HasSubstr("layer 0 takes an input of 12 elements; the model makes "
                                           "one of 0")));
  EXPECT_THAT(refused([](ModelSpec& spec) { spec.layer_inputs->vocab_size = 60; }),
              StatusIs(kInvalid, HasSubstr("a row for each of 61 tokens, found 60")));
}

TEST(SharedLayers, HaveTheTensorsOfTheirQueriesAndOfTheirInputs) {
  const ParameterTable table(Shared());
  std::map<std::string, std::vector<int64_t>> shapes;
  for (const ParameterTable::SegmentRef ref : table.segments()) {
    const Segment& segment = table.segment(ref);
    shapes[segment.name] = segment.shape;
  }
  EXPECT_THAT(shapes.at("model.embed_tokens_per_layer.weight"), ElementsAre(64, 6 * 12));
  EXPECT_THAT(shapes.at("model.per_layer_model_projection.weight"), ElementsAre(6 * 12, 48));
  EXPECT_THAT(shapes.at("model.per_layer_projection_norm.weight"), ElementsAre(12));
  EXPECT_THAT(shapes.at("model.layers.3.per_layer_input_gate.weight"), ElementsAre(12, 48));
  EXPECT_THAT(shapes.at("model.layers.3.per_layer_projection.weight"), ElementsAre(48, 12));
  EXPECT_THAT(shapes.at("model.layers.3.post_per_layer_input_norm.weight"), ElementsAre(48));
  EXPECT_THAT(shapes.at("model.layers.2.self_attn.k_proj.weight"), ElementsAre(64, 48));
  EXPECT_THAT(shapes.at("model.layers.4.self_attn.q_proj.weight"), ElementsAre(128, 48));
  EXPECT_EQ(shapes.count("model.layers.4.self_attn.q_norm.weight"), 1);
  for (const char* const name : {"k_proj.weight", "v_proj.weight", "k_norm.weight"}) {
    EXPECT_EQ(shapes.count(std::string("model.layers.4.self_attn.") + name), 0) << name;
    EXPECT_EQ(shapes.count(std::string("model.layers.1.self_attn.") + name), 1) << name;
  }
  // The table of inputs is in a unit of its own.
  const Parameter& inputs = table.parameter(table.layer_inputs().table);
  EXPECT_NE(inputs.unit, table.parameter(table.embedding()).unit);
  EXPECT_EQ(table.units()[inputs.unit].name, "embed.layer_inputs");
  EXPECT_EQ(table.first_stage(inputs.unit), 0);
  EXPECT_EQ(table.num_stages(), 8);
}

TEST(SharedLayers, TakeNoMemoryOfTheCache) {
  const ModelSpec spec = Shared();
  ModelSpec without = spec;
  without.layers.resize(3);
  EXPECT_THAT(LayerWindows(spec), ElementsAre(20, 20, 0, kNoCache, kNoCache, kNoCache));
  for (const bool on_gpu : {false, true}) {
    EXPECT_THAT(CacheSizes(spec, 1, on_gpu), ElementsAre(64, 64, 128, 0, 0, 0));
    for (const int ranks : {1, 2}) {
      EXPECT_EQ(ModelCacheElementsPerToken(spec, ranks, on_gpu),
                ModelCacheElementsPerToken(without, ranks, on_gpu));
    }
  }
  ASSERT_OK_AND_ASSIGN(PagedKvCacheOptions options,
                       CacheOfModel(spec, {}, LatentCache::kExpanded, at::kCPU));
  ASSERT_OK_AND_ASSIGN(PagedKvCacheOptions expected,
                       CacheOfModel(without, {}, LatentCache::kExpanded, at::kCPU));
  options.num_blocks = expected.num_blocks = 5;
  EXPECT_EQ(PagedKvCache::BytesPerBlock(options), PagedKvCache::BytesPerBlock(expected));
  ASSERT_OK_AND_ASSIGN(const PagedKvCache cache, PagedKvCache::Create(options));
  EXPECT_FALSE(cache.keys(4).defined());
  EXPECT_TRUE(cache.keys(2).defined());
}

// Parameters under the names of their segments, in float64.
class Reference {
 public:
  Reference(const ModelSpec& spec, const std::map<std::string, at::Tensor>& weights)
      : spec_(spec), weights_(weights) {}

  // ids: one sequence. Returns the stream behind the last layer.
  at::Tensor Hidden(const at::Tensor& ids) {
    const int64_t n = ids.numel();
    const int64_t size = spec_.layer_inputs->size;
    at::Tensor x = Of("model.embed_tokens.weight").index_select(0, ids) * 1.5;
    const at::Tensor rows = Of("model.embed_tokens_per_layer.weight").index_select(0, ids) *
                            std::sqrt(static_cast<double>(size));
    const at::Tensor projected =
        at::matmul(x, Of("model.per_layer_model_projection.weight").t()) / std::sqrt(48.0);
    for (int layer = 0; layer < 6; ++layer) {
      const std::string name = "model.layers." + std::to_string(layer) + ".";
      const at::Tensor input =
          (Norm(projected.narrow(1, layer * size, size), "model.per_layer_projection_norm.weight") +
           rows.narrow(1, layer * size, size)) /
          std::sqrt(2.0);
      const at::Tensor attended = Attention(Norm(x, name + "input_layernorm.weight"), layer, n);
      x = x + Norm(attended, name + "post_self_attn_layernorm.weight");
      const at::Tensor in = Norm(x, name + "post_attention_layernorm.weight");
      const at::Tensor fed = at::matmul(at::silu(Times(in, name + "mlp.gate_proj.weight")) *
                                            Times(in, name + "mlp.up_proj.weight"),
                                        Of(name + "mlp.down_proj.weight").t());
      x = x + Norm(fed, name + "post_mlp_layernorm.weight");
      const at::Tensor gate =
          at::gelu(Times(x, name + "per_layer_input_gate.weight"), "tanh") * input;
      x = x + Norm(Times(gate, name + "per_layer_projection.weight"),
                   name + "post_per_layer_input_norm.weight");
    }
    return x;
  }

 private:
  const at::Tensor& Of(const std::string& name) const { return weights_.at(name); }
  at::Tensor Times(const at::Tensor& x, const std::string& name) const {
    return at::matmul(x, Of(name).t());
  }
  at::Tensor Norm(const at::Tensor& x, const std::string& name) const {
    return x * (x.square().mean(-1, true) + 1e-6).rsqrt() * Of(name);
  }

  // x: [n, heads, dim]; the first 16 elements of a head rotate.
  static at::Tensor Rotate(const at::Tensor& x, double theta) {
    const int64_t n = x.size(0);
    const at::Tensor frequency = at::pow(theta, -at::arange(8, at::kDouble) / 8.0);
    const at::Tensor angle = at::outer(at::arange(n, at::kDouble), frequency).unsqueeze(1);
    const at::Tensor a = x.narrow(2, 0, 8);
    const at::Tensor b = x.narrow(2, 8, 8);
    return at::cat({a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin(),
                    x.narrow(2, 16, x.size(2) - 16)},
                   2);
  }

  at::Tensor Attention(const at::Tensor& in, int layer, int64_t n) {
    const AttentionSpec& spec = spec_.layers[layer].attention;
    const std::string name = "model.layers." + std::to_string(layer) + ".self_attn.";
    const bool is_full = layer == 2 || layer == 4;
    const double theta = is_full ? 100.0 : 10000.0;
    const auto heads = [&](const char* which, int64_t count) {
      return Times(in, name + which + "_proj.weight").view({n, count, spec.head_dim});
    };
    const at::Tensor q = Rotate(Norm(heads("q", 4), name + "q_norm.weight"), theta);
    if (layer < 3) {
      keys_[is_full] = Rotate(Norm(heads("k", 2), name + "k_norm.weight"), theta);
      values_[is_full] = heads("v", 2);
    }
    const at::Tensor k = keys_[is_full].repeat_interleave(2, 1);
    const at::Tensor v = values_[is_full].repeat_interleave(2, 1);
    const at::Tensor place = at::arange(n);
    const at::Tensor distance = place.unsqueeze(1) - place;
    at::Tensor hidden = distance < 0;
    if (!is_full) hidden = hidden | (distance >= 20);
    const at::Tensor scores =
        (at::einsum("ihd,jhd->hij", {q, k}) / std::sqrt(static_cast<double>(spec.head_dim)))
            .masked_fill(hidden, -1e30);
    const at::Tensor attended = at::einsum("hij,jhd->ihd", {at::softmax(scores, 2), v});
    return Times(attended.reshape({n, 4 * spec.head_dim}), name + "o_proj.weight");
  }

  const ModelSpec& spec_;
  const std::map<std::string, at::Tensor>& weights_;
  std::map<bool, at::Tensor> keys_, values_;  // of the last layer of a kind that makes them
};

class Weights : public ParameterProvider {
 public:
  Weights(const Transformer& model, at::ScalarType type) {
    for (size_t i = 0; i < model.table().parameters().size(); ++i) {
      const Parameter& parameter = model.table().parameter(static_cast<int>(i));
      const at::Tensor index =
          at::arange(parameter.numel, at::kDouble) * 0.37 + static_cast<double>(i);
      const bool is_norm = parameter.role == ParameterRole::kNorm;
      const at::Tensor values =
          is_norm ? 1.0 + 0.1 * index.sin() : 0.2 * (index * index * 0.61).sin();
      parameters_.push_back(values.view(parameter.shape).to(type).requires_grad_());
    }
  }
  const at::Tensor& Get(int index) const override { return parameters_[index]; }
  const std::vector<at::Tensor>& parameters() const { return parameters_; }

 private:
  std::vector<at::Tensor> parameters_;
};

double Distance(const at::Tensor& found, const at::Tensor& expected) {
  return ((found.to(at::kDouble) - expected).abs().max() / expected.abs().max()).item<double>();
}

TEST(SharedLayers, ComputeWhatPlainOperationsDo) {
  const ModelSpec spec = Shared();
  const Transformer model(spec);
  const int64_t n = 70;  // several windows
  const at::Tensor ids = (at::arange(n) * 7).remainder(spec.vocab_size);
  const at::Tensor factors = (at::arange(n * 48, at::kDouble) * 0.7).cos().view({n, 48});

  const Weights exact(model, at::kDouble);
  std::map<std::string, at::Tensor> by_name;
  for (const ParameterTable::SegmentRef ref : model.table().segments()) {
    const Segment& segment = model.table().segment(ref);
    by_name[segment.name] = exact.Get(ref.parameter).narrow(0, segment.row, segment.shape.front());
  }
  const at::Tensor expected = Reference(spec, by_name).Hidden(ids);
  const std::vector<at::Tensor> expected_gradients =
      torch::autograd::grad({(expected * factors).sum()}, exact.parameters(), {}, {}, false, true);

  const at::Tensor cu_seqlens = at::tensor({int64_t{0}, n}, at::kLong);
  for (const auto& [type, tolerance] : {std::pair(at::kDouble, 1e-9), {at::kFloat, 2e-5}}) {
    const Weights weights(model, type);
    PackedAttention attention(cu_seqlens, type == at::kDouble
                                              ? PackedAttention::Implementation::kEager
                                              : PackedAttention::Implementation::kFast);
    const at::Tensor positions = PackedPositions(cu_seqlens);
    Rotary rotary = model.MakeRotary(positions);
    if (type == at::kDouble) {
      for (RotaryAngles& angles : rotary.ropes) {
        const double theta = &angles == &rotary.ropes.front() ? 10000.0 : 100.0;
        const at::Tensor angle =
            at::outer(positions.to(at::kDouble), at::pow(theta, -at::arange(8, at::kDouble) / 8.0));
        angles.cos = angle.cos();
        angles.sin = angle.sin();
      }
    }
    const at::Tensor found = model.Blocks(weights, ids, positions, rotary, attention);
    EXPECT_LT(Distance(found, expected), tolerance);
    const std::vector<at::Tensor> gradients =
        torch::autograd::grad({(found * factors.to(type)).sum()}, weights.parameters(), {}, {},
                              false, /*allow_unused=*/true);
    for (size_t i = 0; i < gradients.size(); ++i) {
      const std::string& name = model.table().parameter(static_cast<int>(i)).name;
      ASSERT_EQ(gradients[i].defined(), expected_gradients[i].defined()) << name;
      if (!gradients[i].defined()) continue;
      EXPECT_LT(Distance(gradients[i], expected_gradients[i]), 10 * tolerance) << name;
    }
  }
}

TEST(SharedLayers, ReadTheKeysOfTheirPartOverRanks) {
  const ModelSpec spec = Shared();
  EXPECT_OK(CheckTensorParallel(spec, 2));
  EXPECT_OK(CheckSequenceParallel(spec, 1, 2));
  const ParameterTable part(spec, {}, {1, 2});
  const Parameter& table = part.parameter(part.layer_inputs().table);
  EXPECT_THAT(table.shape, ElementsAre(32, 72));
  EXPECT_THAT(table.segments.front().start, ElementsAre(32, 0));
  EXPECT_THAT(part.parameter(part.layer(4).attention.qkv_weight).shape, ElementsAre(64, 48));
  EXPECT_THAT(part.parameter(part.layer(4).input_gate.gate_weight).shape, ElementsAre(12, 48));
}

}  // namespace
}  // namespace tandem::model
