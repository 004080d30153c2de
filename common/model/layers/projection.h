// The linear layers of a block, split over tensor-parallel ranks like Megatron's (1909.08053).
#ifndef TANDEM_COMMON_MODEL_LAYERS_PROJECTION_H_
#define TANDEM_COMMON_MODEL_LAYERS_PROJECTION_H_

#include <ATen/core/Tensor.h>

#include <optional>

#include "common/model/layers/layer_context.h"

namespace tandem::model {

// Returns the parameter; nullopt for -1.
std::optional<at::Tensor> OptionalParameter(const ParameterProvider& params, int index);

// Returns x [num_tokens, in], identical on every rank, times this rank's rows of the weight; -1: no
// bias. `tag` names the layer in errors of collectives.
at::Tensor ColumnParallel(const LayerContext& context, const at::Tensor& x, int weight, int bias,
                          const char* tag);

// Returns x [num_tokens, this rank's inputs] times its columns of the weight, summed over the
// ranks; the bias is added once.
at::Tensor RowParallel(const LayerContext& context, const at::Tensor& x, int weight, int bias,
                       const char* tag);

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_LAYERS_PROJECTION_H_
