#include "common/model/vision_ops.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/div.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/unbind.h>

#include <optional>
#include <vector>

#include "common/device/upload.h"
#include "common/model/activation.h"
#include "common/model/layers/tensor_ops.h"
#include "common/model/linear.h"

namespace tandem::model {

at::Tensor TimesWeight(const at::Tensor& x, const ParameterProvider& params, int weight, int bias) {
  return Linear(x, params.Get(weight),
                bias < 0 ? std::nullopt : std::optional<at::Tensor>(params.Get(bias)),
                params.Packed(weight));
}

// Converted first: in bfloat16 half as much is copied.
at::Tensor PixelsFor(const at::Tensor& weight, const at::Tensor& pixel_values) {
  return ::tandem::device::Upload(pixel_values.to(weight.scalar_type()), weight.device());
}

at::Tensor Numbers(const std::vector<int64_t>& values, at::Device device) {
  return ::tandem::device::Upload(at::tensor(values, at::kLong), device);
}

at::Tensor MeansOfRows(const at::Tensor& x, int64_t count) {
  if (count == 1) return x;
  const std::vector<at::Tensor> parts =
      at::unbind(x.view({-1, count, x.size(1)}).to(at::kFloat), 1);
  at::Tensor sum = parts[0] + parts[1];
  for (size_t i = 2; i < parts.size(); ++i) sum.add_(parts[i]);
  return sum.div_(static_cast<double>(count)).to(x.scalar_type());
}

at::Tensor MergePatches(const VisionSpec& spec, const MergerParameters& at,
                        const ParameterProvider& params, const at::Tensor& x, int64_t norm_size) {
  at::Tensor merged = x.contiguous();
  if (spec.averages_patches) {
    merged = MeansOfRows(merged.view({-1, spec.hidden_size}), spec.patches_per_row());
  }
  if (spec.merger_norm.has_value()) {
    merged = Normalize(merged.view({-1, norm_size}), NormOf(params, *spec.merger_norm, at.norm))
                 .contiguous();
  }
  if (!spec.averages_patches) merged = merged.view({-1, spec.merged_size()});
  if (spec.reduces_patches) {
    const at::Tensor by_element =
        merged.view({-1, spec.patches_per_row(), spec.hidden_size}).transpose(1, 2).contiguous();
    merged = TimesWeight(by_element.view({-1, spec.merged_size()}), params, at.reduce_weight, -1);
  }
  if (spec.merger_is_matrix) return TimesWeight(merged, params, at.down_weight, at.down_bias);
  const at::Tensor up = TimesWeight(merged, params, at.up_weight, at.up_bias);
  const ActivationFunction function{spec.merger_activation, /*gated=*/false, {}};
  return TimesWeight(Activate(up, function), params, at.down_weight, at.down_bias);
}

}  // namespace tandem::model
