#include "common/model/families/row_overrides.h"

#include <map>
#include <set>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/model/families/row_heads.h"
#include "common/status/status_macros.h"

namespace tandem::model {
namespace {

using nlohmann::json;

// The keys of config.json that a row's heads have.
std::set<std::string> KeysOfHeads(const v1::FamilyRow& row) {
  std::set<std::string> keys;
  for (const RowValue* value :
       {&row.num_heads(), &row.num_kv_heads(), &row.head_dim(), &row.v_head_dim()}) {
    for (const std::string& text : *value) {
      if (!IsRowConstant(text)) keys.insert(text);
    }
  }
  return keys;
}

// Returns the object at `key` by the numbers of layers.
absl::StatusOr<std::map<int64_t, json>> ByLayer(const ConfigReader& config, const char* key,
                                                int64_t num_layers) {
  const json& object = config.At(key);
  const auto invalid = [&] {
    return config.Invalid(
        key,
        absl::StrCat("an object of objects, by the numbers of layers from 0 to ", num_layers - 1));
  };
  if (!object.is_object()) return invalid();
  std::map<int64_t, json> layers;
  for (const auto& [name, keys] : object.items()) {
    int64_t layer = 0;
    if (!absl::SimpleAtoi(name, &layer) || layer < 0 || layer >= num_layers || !keys.is_object()) {
      return invalid();
    }
    layers[layer] = keys;
  }
  return layers;
}

}  // namespace

absl::Status ParseLayerOverrides(const v1::FamilyRow& row, const RowValues& values,
                                 ModelSpec& spec) {
  const ConfigReader& config = values.config();
  const char* const key = row.layer_overrides().c_str();
  if (row.layer_overrides().empty() || !config.Has(key)) return absl::OkStatus();
  ASSIGN_OR_RETURN(const auto overrides, ByLayer(config, key, spec.num_layers()));
  const v1::FamilyRow of_layer = WindowedRow(row);
  const std::set<std::string> known = KeysOfHeads(of_layer);
  for (int64_t i = 0; i < spec.num_layers(); ++i) {
    json merged = config.object();
    const std::string place = absl::StrCat(config.place(), ": ", key, ": ", i);
    if (const auto own = overrides.find(i); own != overrides.end()) {
      for (const auto& [name, value] : own->second.items()) {
        if (!known.contains(name) && (!merged.contains(name) || merged[name] != value)) {
          return ConfigReader(own->second, place)
              .Unsupported(name.c_str(), absl::StrCat("what the model has; layers may differ in ",
                                                      absl::StrJoin(known, ", ")));
        }
        merged[name] = value;
      }
    }
    const ConfigReader reader(merged, place);
    RowValues own_values(reader);
    own_values.sizes = values.sizes;
    AttentionSpec heads;
    RETURN_IF_ERROR(ParseHeads(of_layer, own_values, heads));
    TakeHeads(heads, spec.layers[i].attention);
  }
  return absl::OkStatus();
}

}  // namespace tandem::model
