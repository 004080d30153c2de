#include "common/model/families/row_carried.h"

#include "absl/strings/str_cat.h"
#include "common/model/families/row_weights.h"
#include "common/model/stored_name.h"
#include "common/status/status_macros.h"

namespace tandem::model {
namespace {

// The last of the first `count` layers with a window, or without; -1 if there is none.
int64_t LastOfKind(const ModelSpec& spec, int64_t count, bool windowed) {
  for (int64_t i = count - 1; i >= 0; --i) {
    if (spec.layers[i].attention.window.IsLimited() == windowed) return i;
  }
  return -1;
}

}  // namespace

absl::Status ParseSharedKv(const v1::FamilyRow& row, const RowValues& values, ModelSpec& spec) {
  ASSIGN_OR_RETURN(const int64_t count, values.Count(row.shared_kv_layers(), kMaxLayers, 0));
  ASSIGN_OR_RETURN(const bool doubles, values.Flag(row.shared_kv_double_mlp(), false));
  const int64_t first = spec.num_layers() - count;
  for (int64_t i = first; i < spec.num_layers(); ++i) {
    const bool windowed = i >= 0 && spec.layers[i].attention.window.IsLimited();
    const int64_t maker = LastOfKind(spec, first, windowed);
    if (maker < 0) {
      return values.SourceOf(row.shared_kv_layers())
          .Invalid(absl::StrCat("such that of ", spec.num_layers(), " layers one ",
                                windowed ? "with" : "without",
                                " a window comes before those that share keys and values"));
    }
    LayerSpec& layer = spec.layers[i];
    layer.attention.kv_layer = maker;
    layer.attention.values_are_keys = false;
    layer.attention.value_norm.reset();
    if (doubles) layer.feed_forward.intermediate_size *= 2;
    const std::string attention = FillStoredName(LayerPrefixOf(row), {.layer = i}) + "self_attn.";
    for (const char* unread : {"k_proj.*", "v_proj.*", "k_norm.*", "v_norm.*"}) {
      spec.ignored_tensors.push_back(attention + unread);
    }
  }
  return absl::OkStatus();
}

absl::Status ParseLayerInputs(const v1::FamilyRow& row, const RowValues& values, ModelSpec& spec) {
  if (!row.has_layer_inputs()) return absl::OkStatus();
  const v1::LayerInputs& inputs = row.layer_inputs();
  ASSIGN_OR_RETURN(const int64_t size, values.Count(inputs.size(), kMaxWidth, 0));
  if (size == 0) return absl::OkStatus();
  LayerInputSpec& spec_of_inputs = spec.layer_inputs.emplace();
  spec_of_inputs.size = size;
  spec_of_inputs.norm = spec.layers.front().norm;
  ASSIGN_OR_RETURN(spec_of_inputs.vocab_size, values.Size(inputs.vocab_size(), kMaxVocab));
  if (size * spec.num_layers() > kMaxWidth) {
    return values.SourceOf(inputs.size())
        .Invalid(absl::StrCat("such that inputs of ", spec.num_layers(), " layers have at most ",
                              kMaxWidth, " elements together"));
  }
  for (LayerSpec& layer : spec.layers) {
    layer.input_gate = InputGateSpec{.size = size, .activation = layer.feed_forward.activation};
  }
  return absl::OkStatus();
}

}  // namespace tandem::model
