// What the usage examples in common/model/layers leave to the reader.
#ifndef TANDEM_TESTS_HEADER_EXAMPLES_COMMON_MODEL_LAYERS_H_
#define TANDEM_TESTS_HEADER_EXAMPLES_COMMON_MODEL_LAYERS_H_

#include "common/model/layers/tensor_ops.h"
#include "common/model/parameter.h"

namespace tandem::model::attention_spec_example {
extern ParameterDeclarations& declarations;
}  // namespace tandem::model::attention_spec_example

namespace tandem::model::expert_spec_example {
extern ParameterDeclarations& declarations;
}  // namespace tandem::model::expert_spec_example

namespace tandem::model::layer_forward_example {
extern OpContext context;
extern LayerAttention attention;
extern ModelSpec spec;
extern ParameterTable table;
extern int64_t i;
extern at::Tensor x;
}  // namespace tandem::model::layer_forward_example

namespace tandem::model::norm_spec_example {
extern ParameterDeclarations& declarations;
}  // namespace tandem::model::norm_spec_example

#endif  // TANDEM_TESTS_HEADER_EXAMPLES_COMMON_MODEL_LAYERS_H_
