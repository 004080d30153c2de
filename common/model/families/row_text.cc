#include "common/model/families/row_text.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/model/families/config_reader.h"
#include "common/model/families/family_table.h"
#include "common/model/families/row_gemma_images.h"
#include "common/status/status_macros.h"

namespace tandem::model {
namespace {

using nlohmann::json;

constexpr char kTextConfig[] = "text_config";

// Language models whose tensors have Llama's names, with what their classes in transformers 5.24 say
// where a file does not, as files of 2023 do not.
struct TextModel {
  const char* model_type;
  const char* architecture;
  const char* defaults;
};
constexpr TextModel kModels[] = {
    {"llama", "LlamaForCausalLM",
     R"({"vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 11008,
         "num_hidden_layers": 32, "num_attention_heads": 32, "bos_token_id": 1, "eos_token_id": 2})"},
    {"mistral", "MistralForCausalLM",
     R"({"vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 14336,
         "num_hidden_layers": 32, "num_attention_heads": 32, "bos_token_id": 1, "eos_token_id": 2})"},
    {"qwen2", "Qwen2ForCausalLM",
     R"({"vocab_size": 151936, "hidden_size": 4096, "intermediate_size": 22016,
         "num_hidden_layers": 32, "num_attention_heads": 32})"},
    {"qwen3", "Qwen3ForCausalLM",
     R"({"vocab_size": 151936, "hidden_size": 4096, "intermediate_size": 22016,
         "num_hidden_layers": 32, "num_attention_heads": 32})"},
};

}  // namespace

absl::StatusOr<v1::FamilyRow> WithTextRow(const v1::FamilyRow& row, const std::string& place,
                                          json& config) {
  if (row.vision_tower() == v1::VISION_TOWER_GEMMA3) {
    RETURN_IF_ERROR(AddGemmaText(place, config));
    return row;
  }
  const ConfigReader outer(config, place);
  if (!outer.Has(kTextConfig) || !outer.At(kTextConfig).is_object())
    return outer.Invalid(kTextConfig, "an object");
  const ConfigReader text(outer.At(kTextConfig), absl::StrCat(place, ": ", kTextConfig));
  const bool is_qwen2 = row.vision_tower() == v1::VISION_TOWER_INTERNVL ||
                        row.vision_tower() == v1::VISION_TOWER_LLAVA_ONEVISION;
  ASSIGN_OR_RETURN(const std::string type, text.Text("model_type", is_qwen2 ? "qwen2" : "llama"));
  const auto* const found =
      std::find_if(std::begin(kModels), std::end(kModels),
                   [&](const TextModel& model) { return type == model.model_type; });
  if (found == std::end(kModels)) {
    return text.Unsupported("model_type",
                            "llama, mistral, qwen2, qwen3, the language models of this family");
  }
  json complete = json::parse(found->defaults);
  for (const auto& [key, value] : text.object().items()) complete[key] = value;
  config[kTextConfig] = std::move(complete);

  v1::FamilyRow joined = *Families().FindArchitecture(found->architecture);
  joined.set_architecture(row.architecture());
  joined.set_model_type(row.model_type());
  joined.set_vision_tower(row.vision_tower());
  joined.set_layer_prefix(row.layer_prefix());
  *joined.mutable_weights() = row.weights();
  *joined.mutable_layer_weights() = row.layer_weights();
  *joined.mutable_ignored_tensors() = row.ignored_tensors();
  *joined.mutable_optional_prefixes() = row.optional_prefixes();
  return joined;
}

}  // namespace tandem::model
