// What vision towers have in common.
#ifndef TANDEM_COMMON_MODEL_VISION_OPS_H_
#define TANDEM_COMMON_MODEL_VISION_OPS_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "common/model/model_spec.h"
#include "common/model/parameter_provider.h"
#include "common/model/parameter_table.h"

namespace tandem::model {

// Returns x times a weight, plus a bias unless that is -1.
at::Tensor TimesWeight(const at::Tensor& x, const ParameterProvider& params, int weight, int bias);

// The pixels in the weight's type, on its device. A copy to a device does not wait for its work.
at::Tensor PixelsFor(const at::Tensor& weight, const at::Tensor& pixel_values);

// Copies the numbers to a device, without a wait for its work: int64 [values.size()].
at::Tensor Numbers(const std::vector<int64_t>& values, at::Device device);

// The mean of each `count` rows of x, [rows, width], which is contiguous: [rows / count, width]. Adds in
// float32, one row after another, so that the bits do not depend on other rows.
at::Tensor MeansOfRows(const at::Tensor& x, int64_t count);

// The rows of the embedding that a merger makes. x: [num_patches, tower's hidden], those of a row behind one
// another; `norm_size`: elements that the norm sees at once. Returns [num_rows, hidden].
at::Tensor MergePatches(const VisionSpec& spec, const MergerParameters& at,
                        const ParameterProvider& params, const at::Tensor& x, int64_t norm_size);

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_VISION_OPS_H_
