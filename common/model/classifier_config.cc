#include "common/model/classifier_config.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/model/families/family_table.h"
#include "nlohmann/json.hpp"

namespace tandem::model {

bool ReplaceClassifier(absl::string_view suffix, nlohmann::json& config) {
  if (!config.is_object() || !config.contains("architectures")) return false;
  nlohmann::json& list = config["architectures"];
  if (!list.is_array() || list.empty() || !list[0].is_string()) return false;
  const std::string name = list[0].get<std::string>();
  absl::string_view family = name;
  if (!absl::ConsumeSuffix(&family, suffix)) return false;
  list[0] = absl::StrCat(family, "ForCausalLM");
  const std::string of_older = absl::StrCat(family, "LMHeadModel");  // GPT-2
  if (Families().FindArchitecture(of_older) != nullptr) list[0] = of_older;
  return true;
}

}  // namespace tandem::model
