// NormLayer: the RMSNorm that a sub-layer reads the residual stream through.
#ifndef TANDEM_COMMON_MODEL_LAYERS_NORM_LAYER_H_
#define TANDEM_COMMON_MODEL_LAYERS_NORM_LAYER_H_

#include "common/model/layers/layer_context.h"
#include "common/model/norm.h"

namespace tandem::model {

struct NormLayer {
  int weight = -1;  // index into the parameter table: [hidden]
  double eps = 0;

  // Adds what the sub-layer before has made and norms the sum, in one pass over the rows.
  ResidualNorm Forward(const LayerContext& context, const Residual& in) const;
};

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_LAYERS_NORM_LAYER_H_
