// The model families: each is one file in this folder and one line of registry.cc.
#ifndef TANDEM_COMMON_MODEL_FAMILIES_REGISTRY_H_
#define TANDEM_COMMON_MODEL_FAMILIES_REGISTRY_H_

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/model/families/config_reader.h"
#include "common/model/model_spec.h"

namespace tandem::model {

struct Family {
  const char* model_type;    // of config.json: "llama"
  const char* architecture;  // likewise: "LlamaForCausalLM"
  // Reads the config into a spec; ParseModelSpec() adds the architecture.
  absl::StatusOr<ModelSpec> (*parse)(const ConfigReader& config);
};

extern const Family kLlama;
extern const Family kMixtral;
extern const Family kQwen2;
extern const Family kQwen2Moe;
extern const Family kQwen3;
extern const Family kQwen3Moe;

absl::Span<const Family* const> Families();

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_FAMILIES_REGISTRY_H_
