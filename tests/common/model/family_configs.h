// The config.json of a small model of each family, as transformers 5 writes it.
#ifndef TANDEM_TESTS_COMMON_MODEL_FAMILY_CONFIGS_H_
#define TANDEM_TESTS_COMMON_MODEL_FAMILY_CONFIGS_H_

#include <cstdlib>
#include <string>

#include "common/io/read_file.h"
#include "nlohmann/json.hpp"

namespace tandem::model {

// By names of cases: {"config": ..., "tensors": [...]}. tests/parity/family_configs.py made it.
inline nlohmann::json FamilyConfigs() {
  const char* const source = std::getenv("TANDEM_SOURCE");
  return io::ReadJsonFile(std::string(source != nullptr ? source : ".") +
                          "/tests/common/model/family_configs.json")
      .value();
}

}  // namespace tandem::model

#endif  // TANDEM_TESTS_COMMON_MODEL_FAMILY_CONFIGS_H_
