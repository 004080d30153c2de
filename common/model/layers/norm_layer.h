// NormLayer: the RMSNorm between the residual stream and a sub-layer.
#ifndef TANDEM_COMMON_MODEL_LAYERS_NORM_LAYER_H_
#define TANDEM_COMMON_MODEL_LAYERS_NORM_LAYER_H_

#include "common/model/layers/layer_context.h"
#include "common/model/norm.h"

namespace tandem::model {

struct NormLayer {
  int weight = -1;  // index into the parameter table: [hidden]
  double eps = 0;

  // Adds the previous sub-layer's output and normalises the sum, in one pass over the rows.
  ResidualNorm Forward(const LayerContext& context, const Residual& in) const;
};

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_LAYERS_NORM_LAYER_H_
