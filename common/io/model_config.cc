#include "common/io/model_config.h"

#include <filesystem>
#include <set>
#include <system_error>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/io/read_file.h"
#include "common/status/status_macros.h"

namespace tandem::io {
namespace {

constexpr int64_t kMaxConfigBytes = 64 << 20;

absl::Status AddEosIds(const JsonFields& fields, std::set<int64_t>* ids) {
  constexpr char kKey[] = "eos_token_id";
  if (!fields.Has(kKey)) return absl::OkStatus();
  std::vector<int64_t> found;
  if (fields.json()[kKey].is_array()) {
    ASSIGN_OR_RETURN(found, fields.IntList(kKey));
  } else {
    ASSIGN_OR_RETURN(const int64_t id, fields.Int(kKey));
    found.push_back(id);
  }
  for (const int64_t id : found) {
    if (id < 0) return fields.Error(kKey, absl::StrCat("expected ids of at least 0, found ", id));
    ids->insert(id);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ModelConfig> ReadModelConfig(const std::string& folder) {
  std::error_code error;
  if (!std::filesystem::is_directory(folder, error)) {
    return absl::NotFoundError(
        absl::StrCat(folder, ": expected a model folder, found ",
                     std::filesystem::exists(folder, error) ? "a file" : "nothing"));
  }
  ModelConfig config;
  config.path = folder + "/config.json";
  if (!std::filesystem::exists(config.path, error)) {
    return absl::NotFoundError(absl::StrCat(
        config.path, ": no such file; expected a Hugging Face model folder with a config.json"));
  }
  ASSIGN_OR_RETURN(config.json, ReadJsonFile(config.path, kMaxConfigBytes));
  config.generation = nlohmann::json::object();
  const std::string generation_path = folder + "/generation_config.json";
  if (std::filesystem::exists(generation_path, error)) {
    ASSIGN_OR_RETURN(config.generation, ReadJsonFile(generation_path, kMaxConfigBytes));
  }
  std::set<int64_t> ids;
  RETURN_IF_ERROR(AddEosIds(config.fields(), &ids));
  RETURN_IF_ERROR(AddEosIds(JsonFields(config.generation, generation_path), &ids));
  config.eos_token_ids.assign(ids.begin(), ids.end());
  return config;
}

}  // namespace tandem::io
