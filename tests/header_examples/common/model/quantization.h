// What the usage examples in common/model/quantization leave to the reader.
#ifndef TANDEM_TESTS_HEADER_EXAMPLES_COMMON_MODEL_QUANTIZATION_H_
#define TANDEM_TESTS_HEADER_EXAMPLES_COMMON_MODEL_QUANTIZATION_H_

#include <string>
#include <vector>

#include "common/io/model_config.h"
#include "common/io/model_folder.h"

namespace tandem::model::quantization_example {
extern io::ModelConfig config;
extern io::ModelFolder folder;
extern std::string name;
extern std::vector<int64_t> shape;
void Use(const std::string& tensor);
}  // namespace tandem::model::quantization_example

#endif  // TANDEM_TESTS_HEADER_EXAMPLES_COMMON_MODEL_QUANTIZATION_H_
