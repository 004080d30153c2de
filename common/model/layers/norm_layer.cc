#include "common/model/layers/norm_layer.h"

#include <vector>

namespace tandem::model {

ResidualNorm NormLayer::Forward(const LayerContext& context, const Residual& in) const {
  const at::Tensor& scale = context.params.Get(weight);
  ResidualNorm out = AddRmsNorm(in.x, in.delta, scale, eps);
  if (context.recomputation != nullptr) {
    context.recomputation->Add({out.normed}, [residual = out.residual.detach(), scale, eps = eps] {
      return std::vector<at::Tensor>{RmsNorm(residual, scale, eps)};
    });
  }
  return out;
}

}  // namespace tandem::model
