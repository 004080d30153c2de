// quant_method "mxfp4": the experts of gpt-oss. For a tensor NAME [experts, in, out] the folder has
// the transposed matrices, 32 columns of a row with one scale (OCP Microscaling Formats):
//
//   NAME_blocks  uint8 [experts, out, in / 32, 16]   two float4_e2m1fn each, the lower half first
//   NAME_scales  uint8 [experts, out, in / 32]       2^(scale - 127); 255 is NaN
//
// A weight is element * scale, which float32 and bfloat16 hold exactly.
#ifndef TANDEM_COMMON_MODEL_QUANTIZATION_MXFP4_H_
#define TANDEM_COMMON_MODEL_QUANTIZATION_MXFP4_H_

#include <memory>

#include "absl/status/statusor.h"
#include "common/model/families/config_reader.h"
#include "common/model/quantization/quantization.h"

namespace tandem::model {

// `settings`: the object "quantization_config". Errors are those of ReadQuantization().
absl::StatusOr<std::shared_ptr<const Quantization>> ReadMxfp4Quantization(
    const ConfigReader& settings);

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_QUANTIZATION_MXFP4_H_
