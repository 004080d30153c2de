#include "common/model/vision_ops.h"

#include <optional>

#include "common/model/activation.h"
#include "common/model/layers/tensor_ops.h"
#include "common/model/linear.h"

namespace tandem::model {

at::Tensor TimesWeight(const at::Tensor& x, const ParameterProvider& params, int weight, int bias) {
  return Linear(x, params.Get(weight),
                bias < 0 ? std::nullopt : std::optional<at::Tensor>(params.Get(bias)),
                params.Packed(weight));
}

at::Tensor MergePatches(const VisionSpec& spec, const MergerParameters& at,
                        const ParameterProvider& params, const at::Tensor& x, int64_t norm_size) {
  at::Tensor merged = x.contiguous();
  if (spec.merger_norm.has_value()) {
    merged = Normalize(merged.view({-1, norm_size}), NormOf(params, *spec.merger_norm, at.norm))
                 .contiguous();
  }
  merged = merged.view({-1, spec.merged_size()});
  if (spec.reduces_patches) {
    const at::Tensor by_element =
        merged.view({-1, spec.patches_per_row(), spec.hidden_size}).transpose(1, 2).contiguous();
    merged = TimesWeight(by_element.view({-1, spec.merged_size()}), params, at.reduce_weight, -1);
  }
  const at::Tensor up = TimesWeight(merged, params, at.up_weight, at.up_bias);
  const ActivationFunction function{spec.merger_activation, /*gated=*/false, {}};
  return TimesWeight(Activate(up, function), params, at.down_weight, at.down_bias);
}

}  // namespace tandem::model
