// What the usage examples in common/model/layers leave to the reader.
#ifndef TANDEM_TESTS_HEADER_EXAMPLES_COMMON_MODEL_LAYERS_H_
#define TANDEM_TESTS_HEADER_EXAMPLES_COMMON_MODEL_LAYERS_H_

#include "common/model/parameter.h"

namespace tandem::model::attention_spec_example {
extern ParameterDeclarations& declarations;
}  // namespace tandem::model::attention_spec_example

#endif  // TANDEM_TESTS_HEADER_EXAMPLES_COMMON_MODEL_LAYERS_H_
