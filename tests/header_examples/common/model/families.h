// What the usage examples in common/model/families leave to the reader.
#ifndef TANDEM_TESTS_HEADER_EXAMPLES_COMMON_MODEL_FAMILIES_H_
#define TANDEM_TESTS_HEADER_EXAMPLES_COMMON_MODEL_FAMILIES_H_

#include "common/model/families/config_reader.h"

namespace tandem::model::rotary_config_example {
extern ConfigReader config;
}  // namespace tandem::model::rotary_config_example

#endif  // TANDEM_TESTS_HEADER_EXAMPLES_COMMON_MODEL_FAMILIES_H_
