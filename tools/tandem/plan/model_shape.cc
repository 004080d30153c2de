#include "tools/tandem/plan/model_shape.h"

#include <filesystem>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "common/config/nearest.h"
#include "common/io/model_config.h"
#include "common/status/status_macros.h"
#include "nlohmann/json.hpp"
#include "tools/tandem/plan/data.h"

namespace tandem::plan {

absl::StatusOr<model::ModelSpec> FindModelShape(const std::string& path, absl::string_view key) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    ASSIGN_OR_RETURN(const io::ModelConfig config, io::ReadModelConfig(path));
    return model::ParseModelSpec(config.json, config.path);
  }
  const std::string name = absl::AsciiStrToLower(std::filesystem::path(path).filename().string());
  absl::string_view stem = name;
  for (const char* training : {"-instruct", "-base", "-chat"}) {
    absl::ConsumeSuffix(&stem, training);
  }
  const nlohmann::json shapes = nlohmann::json::parse(kModelShapesJson);
  auto found = shapes.find(std::string(stem));
  if (found != shapes.end() && found->is_string()) {  // an alias
    found = shapes.find(found->get<std::string>());
  }
  if (found != shapes.end()) return model::ParseModelSpec(*found, absl::StrCat("shape ", name));
  std::vector<std::string> names;
  for (const auto& [known, shape] : shapes.items()) names.push_back(known);
  const std::string nearest = config::Nearest(stem, names);
  return absl::NotFoundError(
      absl::StrCat(key, ": expected a folder or a known model shape, found ", path,
                   nearest.empty() ? "" : absl::StrCat("; did you mean '", nearest, "'?"),
                   " (known: ", absl::StrJoin(names, ", "), ")"));
}

absl::StatusOr<model::ModelSpec> FindValueModelShape(const std::string& path,
                                                     absl::string_view key) {
  std::error_code error;
  if (!std::filesystem::is_directory(path, error)) return FindModelShape(path, key);
  ASSIGN_OR_RETURN(const io::ModelConfig config, io::ReadModelConfig(path));
  return model::ParseValueModelSpec(config.json, config.path);
}

}  // namespace tandem::plan
