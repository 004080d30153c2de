// LayerContext: inputs of a layer's forward pass besides its activations.
#ifndef TANDEM_COMMON_MODEL_LAYERS_LAYER_CONTEXT_H_
#define TANDEM_COMMON_MODEL_LAYERS_LAYER_CONTEXT_H_

#include "common/comm/process_group.h"
#include "common/model/parameter_provider.h"
#include "common/model/recomputation.h"

namespace tandem::model {

struct LayerContext {
  const ParameterProvider& params;
  comm::ProcessGroup* tensor_group = nullptr;  // null: the layer is not split
  // Receives the inputs of products and of attention that can be recomputed; null: all are kept.
  Recomputation* recomputation = nullptr;
};

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_LAYERS_LAYER_CONTEXT_H_
