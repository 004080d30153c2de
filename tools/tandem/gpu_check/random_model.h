// Folders of Llama-like models with random weights, so that no download stands before the checks.
#ifndef TANDEM_TOOLS_TANDEM_GPU_CHECK_RANDOM_MODEL_H_
#define TANDEM_TOOLS_TANDEM_GPU_CHECK_RANDOM_MODEL_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "nlohmann/json.hpp"

namespace tandem::gpu_check {

struct ModelShape {
  int64_t layers = 0;
  int64_t hidden = 0;
  int64_t intermediate = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  int64_t vocab = 0;
  int64_t positions = 0;
  double deviation = 0.02;  // standard deviation of the weights

  int64_t num_parameters() const;
};

// Small, for comparisons. Its weights are large enough that log-probs spread by several nats.
ModelShape TinyShape();
// About 0.5 billion parameters, for throughput.
ModelShape HalfBillionShape();

// Its config.json.
nlohmann::json ConfigOf(const ModelShape& shape);

// Writes a Hugging Face folder in bfloat16, without a tokenizer. The weights of a matrix repeat
// every few million elements, which no check notices. Errors: ModelFolderWriter's.
absl::Status WriteRandomModel(const ModelShape& shape, const std::string& path);

}  // namespace tandem::gpu_check

#endif  // TANDEM_TOOLS_TANDEM_GPU_CHECK_RANDOM_MODEL_H_
