// config.json and generation_config.json of a Hugging Face model folder.
//
//   ASSIGN_OR_RETURN(io::ModelConfig config, io::ReadModelConfig(folder));
//   io::JsonFields fields = config.fields();
//   ASSIGN_OR_RETURN(int64_t hidden_size, fields.Int("hidden_size"));
#ifndef TANDEM_COMMON_IO_MODEL_CONFIG_H_
#define TANDEM_COMMON_IO_MODEL_CONFIG_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/io/json_fields.h"

namespace tandem::io {

struct ModelConfig {
  std::string path;           // of config.json, for messages
  nlohmann::json json;        // config.json, an object
  nlohmann::json generation;  // generation_config.json; an empty object where there is none

  // Every end-of-text id in either file, ascending and unique. Instruct models often list theirs in
  // generation_config.json only.
  std::vector<int64_t> eos_token_ids;

  // Valid as long as this config is.
  JsonFields fields() const { return JsonFields(json, path); }
};

// Needs no weights. NOT_FOUND if the folder or its config.json is absent; INVALID_ARGUMENT, with
// file and field, for invalid JSON or an eos_token_id that is neither a number nor a list.
absl::StatusOr<ModelConfig> ReadModelConfig(const std::string& folder);

}  // namespace tandem::io

#endif  // TANDEM_COMMON_IO_MODEL_CONFIG_H_
