#include "common/model/carried_tensors.h"

#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"

namespace tandem::model {
namespace {

absl::Status CheckKvLayer(const ModelSpec& spec, int64_t layer) {
  const AttentionSpec& reader = spec.layers[layer].attention;
  const auto invalid = [&](const std::string& what) {
    return absl::InvalidArgumentError(absl::StrCat(
        "layer ", layer, " reads the keys and values of layer ", reader.kv_layer, ", ", what));
  };
  if (reader.kv_layer >= layer) return invalid("which is not before it");
  const AttentionSpec& maker = spec.layers[reader.kv_layer].attention;
  if (maker.reads_other_kv()) return invalid("which has none of its own");
  const auto is_apart = [](const AttentionSpec& attention) {
    return attention.delta.has_value() || attention.latent.has_value() ||
           (attention.qk_norm.has_value() &&
            attention.qk_norm->over == QkNormSpec::Over::kAllHeads);
  };
  if (is_apart(reader) || is_apart(maker)) {
    return absl::UnimplementedError(absl::StrCat(
        "layer ", layer, " reads the keys and values of layer ", reader.kv_layer,
        "; layers with a latent, linear attention or norms of all heads at once cannot "
        "share them"));
  }
  if (maker.num_kv_heads != reader.num_kv_heads || maker.head_dim != reader.head_dim ||
      maker.value_dim() != reader.value_dim()) {
    return invalid(absl::StrCat("which has ", maker.num_kv_heads, " key-value heads with ",
                                maker.head_dim, " and ", maker.value_dim(), " elements; expected ",
                                reader.num_kv_heads, " with ", reader.head_dim, " and ",
                                reader.value_dim()));
  }
  if (maker.rope != reader.rope) return invalid("which rotates them otherwise");
  if (maker.window != reader.window) return invalid("which has another window");
  return absl::OkStatus();
}

absl::Status CheckLayerInputs(const ModelSpec& spec) {
  for (int64_t i = 0; i < spec.num_layers(); ++i) {
    const int64_t expected = spec.layer_inputs.has_value() ? spec.layer_inputs->size : 0;
    const auto& gate = spec.layers[i].input_gate;
    const int64_t found = gate.has_value() ? gate->size : 0;
    if (found == expected && (found > 0 || !gate.has_value())) continue;
    return absl::InvalidArgumentError(absl::StrCat("layer ", i, " takes an input of ", found,
                                                   " elements; the model makes one of ", expected));
  }
  if (!spec.layer_inputs.has_value()) return absl::OkStatus();
  if (spec.layer_inputs->size < 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "inputs of layers: expected a positive size, found ", spec.layer_inputs->size));
  }
  if (spec.layer_inputs->vocab_size < spec.vocab_size) {
    return absl::InvalidArgumentError(
        absl::StrCat("inputs of layers: expected a table with a row for each of ", spec.vocab_size,
                     " tokens, found ", spec.layer_inputs->vocab_size));
  }
  return absl::OkStatus();
}

}  // namespace

std::vector<CarriedTensor> CarriedTensorsOf(const ModelSpec& spec) {
  std::map<int64_t, CarriedTensor> of_layers;
  for (int64_t i = 0; i < spec.num_layers(); ++i) {
    const AttentionSpec& attention = spec.layers[i].attention;
    if (!attention.reads_other_kv()) continue;
    CarriedTensor& kv = of_layers[attention.kv_layer];
    kv.maker = static_cast<int>(attention.kv_layer) + 1;
    kv.readers.push_back(static_cast<int>(i) + 1);
  }
  std::vector<CarriedTensor> all;
  for (auto& [layer, kv] : of_layers) all.push_back(std::move(kv));
  const auto add = [&all](CarriedTensor::Kind kind, size_t num_layers) {
    for (size_t i = 0; i < num_layers; ++i) all.push_back({kind, 0, {static_cast<int>(i) + 1}});
  };
  if (spec.layer_inputs.has_value()) add(CarriedTensor::Kind::kLayerInput, spec.layers.size());
  if (spec.vision.has_value()) {
    add(CarriedTensor::Kind::kImageRows, spec.vision->deepstack_layers.size());
  }
  return all;
}

absl::Status CheckCarriedTensors(const ModelSpec& spec) {
  for (int64_t i = 0; i < spec.num_layers(); ++i) {
    if (!spec.layers[i].attention.reads_other_kv()) continue;
    RETURN_IF_ERROR(CheckKvLayer(spec, i));
  }
  return CheckLayerInputs(spec);
}

}  // namespace tandem::model
