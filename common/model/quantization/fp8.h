// quant_method "fp8": weights of DeepSeek-V3 and Qwen3-FP8, with a scale for each block of
// "weight_block_size" rows and columns, and those of vLLM and Ministral 3, with one for each matrix.
// A weight is element * scale in float32, as in transformers.
#ifndef TANDEM_COMMON_MODEL_QUANTIZATION_FP8_H_
#define TANDEM_COMMON_MODEL_QUANTIZATION_FP8_H_

#include <memory>

#include "absl/status/statusor.h"
#include "common/model/families/config_reader.h"
#include "common/model/quantization/quantization.h"

namespace tandem::model {

// `settings`: the object "quantization_config". Errors are those of ReadQuantization().
absl::StatusOr<std::shared_ptr<const Quantization>> ReadFp8Quantization(
    const ConfigReader& settings);

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_QUANTIZATION_FP8_H_
