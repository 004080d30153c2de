// A file of model families as a user writes it (model.family_file), and a config.json that its rows
// read: YAML, a zero byte, JSON. Without the second, rows read one of a small Llama.
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>

#include "common/io/parse_json.h"
#include "common/model/families/family_table.h"
#include "common/model/families/row_config.h"
#include "common/model/model_spec.h"

namespace {

constexpr char kSmallLlama[] =
    R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 96,
        "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "hidden_act": "silu",
        "max_position_embeddings": 64, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
        "tie_word_embeddings": false})";

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tandem::model;  // NOLINT: the readers
  const std::string input(reinterpret_cast<const char*>(data), size);
  const size_t end = input.find('\0');
  FamilyTable table = Families();
  const size_t num_known = table.rows().size();
  if (!table.Add(input.substr(0, end), "families.yaml").ok()) {
    if (table.rows().size() != num_known) std::abort();
    return 0;
  }
  const auto config = tandem::io::ParseJson<nlohmann::json>(
      end == std::string::npos ? kSmallLlama : input.substr(end + 1));
  if (!config.ok() || !config->is_object()) return 0;
  for (const v1::FamilyRow& row : table.rows()) {
    const v1::FamilyRow* const known = Families().FindArchitecture(row.architecture());
    if (known != nullptr && known->SerializeAsString() == row.SerializeAsString()) continue;
    const auto spec = ParseRow(row, ConfigReader(*config, "config.json"));
    if (spec.ok() && spec->num_parameters() <= 0) std::abort();
  }
  return 0;
}
