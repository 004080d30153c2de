#include "common/model/model_spec.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/model/cache_groups.h"
#include "common/model/carried_tensors.h"
#include "common/model/classifier_config.h"
#include "common/model/families/config_reader.h"
#include "common/model/families/family_table.h"
#include "common/model/families/row_config.h"
#include "common/model/families/row_text.h"
#include "common/model/families/row_tiles.h"
#include "common/model/families/row_vision.h"
#include "common/model/parameter_table.h"
#include "common/status/status_macros.h"
#include "nlohmann/json.hpp"

namespace tandem::model {
namespace {

absl::StatusOr<const v1::FamilyRow*> FindFamily(const ConfigReader& config) {
  std::string architecture;
  if (config.Has("architectures")) {
    const nlohmann::json& list = config.At("architectures");
    if (!list.is_array() || list.empty() || !list[0].is_string()) {
      return config.Invalid("architectures", "a list of names");
    }
    architecture = list[0].get<std::string>();
  }
  ASSIGN_OR_RETURN(const std::string model_type, config.Text("model_type", ""));
  if (architecture.empty() && model_type.empty()) {
    return config.Invalid("architectures", "a list of names");
  }
  const FamilyTable& families = Families();
  const v1::FamilyRow* const row = architecture.empty() ? families.FindModelType(model_type)
                                                        : families.FindArchitecture(architecture);
  if (row != nullptr) return row;
  const std::string& found = architecture.empty() ? model_type : architecture;
  if (const v1::FamilyRow* part = families.FindPartOf(found); part != nullptr) {
    return config.Unsupported(
        architecture.empty() ? "model_type" : "architectures",
        absl::StrCat(part->architecture(), ", its language model; ", part->extraction()));
  }
  const std::string nearest = families.Nearest(found);
  return config.Unsupported(
      architecture.empty() ? "model_type" : "architectures",
      absl::StrCat("the ", families.rows().size(),
                   " architectures of common/model/families/families.yaml",
                   nearest.empty() ? "" : absl::StrCat(", of which the nearest is ", nearest),
                   "; common/model/README.md#add-a-model-family says how to add one in "
                   "model.family_file"));
}

}  // namespace

bool VisionSpec::HasWindow(int64_t layer) const {
  return window_size > 0 && std::find(full_attention_layers.begin(), full_attention_layers.end(),
                                      layer) == full_attention_layers.end();
}

bool ModelSpec::HasLinearAttention() const {
  return std::any_of(layers.begin(), layers.end(),
                     [](const LayerSpec& layer) { return layer.attention.delta.has_value(); });
}

const AttentionSpec& ModelSpec::full_attention() const {
  const auto full = std::find_if(layers.begin(), layers.end(), [](const LayerSpec& layer) {
    return !layer.attention.delta.has_value();
  });
  return full == layers.end() ? layers.front().attention : full->attention;
}

int64_t ModelSpec::num_parameters() const { return ParameterTable(*this).num_parameters(); }

int64_t ModelSpec::num_idle_parameters() const {
  int64_t idle = layer_inputs.has_value() ? layer_inputs->vocab_size * layer_input_size() : 0;
  for (const LayerSpec& layer : layers) {
    if (!layer.experts.has_value()) continue;
    const ExpertSpec& experts = *layer.experts;
    idle += (experts.num_experts - experts.routing.top_k) * experts.ExpertElements(hidden_size);
  }
  return idle;
}

int64_t ModelSpec::num_active_parameters() const {
  return num_parameters() - num_idle_parameters();
}

int64_t ModelCacheElementsPerToken(const ModelSpec& spec, int tensor_ranks, bool on_gpu,
                                   LatentCache latents) {
  const CacheGroups groups = GroupsOfModel(spec, tensor_ranks, on_gpu, latents);
  return groups.num_groups() * groups.size;
}

ModelSpec ValueModelSpec(ModelSpec policy) {
  policy.value_head = true;
  policy.tie_word_embeddings = false;
  policy.head_bias = true;
  return policy;
}

namespace {

absl::StatusOr<ModelSpec> ParseFamily(const nlohmann::json& object, const std::string& place) {
  if (!object.is_object()) {
    return absl::InvalidArgumentError(absl::StrCat(place, ": expected a JSON object"));
  }
  const ConfigReader config(object, place);
  ASSIGN_OR_RETURN(const v1::FamilyRow* const row, FindFamily(config));
  if (row->vision_tower() == v1::VISION_TOWER_UNSPECIFIED) return ParseRow(*row, config);
  if (!SeesTiles(*row)) {
    const nlohmann::json flat = WithTextConfig(*row, object);
    return ParseRow(*row, ConfigReader(flat, place));
  }
  nlohmann::json whole = object;
  ASSIGN_OR_RETURN(const v1::FamilyRow joined, WithTextRow(*row, place, whole));
  const nlohmann::json flat = WithTextConfig(joined, whole);
  return ParseRow(joined, ConfigReader(flat, place));
}

}  // namespace

absl::StatusOr<ModelSpec> ParseModelSpec(const nlohmann::json& object, const std::string& place) {
  ASSIGN_OR_RETURN(ModelSpec spec, ParseFamily(object, place));
  if (absl::Status fits = CheckCarriedTensors(spec); !fits.ok()) {
    return StatusBuilder(std::move(fits)) << place;
  }
  return spec;
}

absl::StatusOr<ModelSpec> ParseValueModelSpec(nlohmann::json config, const std::string& place) {
  ReplaceClassifier("ForTokenClassification", config);
  ASSIGN_OR_RETURN(ModelSpec spec, ParseModelSpec(config, place));
  if (spec.vision.has_value()) {
    return absl::UnimplementedError(
        absl::StrCat(place, ": ", spec.architecture,
                     " has a vision tower; a value model is made of a language model without one"));
  }
  return ValueModelSpec(std::move(spec));
}

}  // namespace tandem::model
