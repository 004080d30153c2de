// Finishes a row's logits, computes its log-prob and entropy, and the gradients of these.
#ifndef TANDEM_COMMON_MODEL_KERNELS_LOG_PROBS_H_
#define TANDEM_COMMON_MODEL_KERNELS_LOG_PROBS_H_

#include <cstdint>

namespace tandem::model::kernels {

// Exponentials per block: a block is summed in float32, the blocks' sums in float64. In float32
// alone, a sum over a large vocabulary would lose its small terms; the sampler also skips to a
// block by these sums.
inline constexpr int64_t kSumBlock = 512;

// Returns the factor for logits: 1 / temperature, in float32, for any temperature above 0.
float InverseTemperature(double temperature);

// Returns log softmax(logits * inverse_temperature) at an entry `logit` of a row with this maximum
// and this sum of exp((logits - maximum) * inverse_temperature). Trainer and rollout share it.
float LogProb(float logit, float maximum, float inverse_temperature, double sum);

// What the head does to its products x: c tanh(v / c) with v = scale (x + bias).
struct LogitTransform {
  const float* bias = nullptr;  // [vocab], or null
  float scale = 1.0f;
  float softcap = 0.0f;  // c; 0: v itself
};
// logits: float32 [rows, vocab], in place.
void TransformLogitRows(int64_t vocab, const LogitTransform& transform, float* logits,
                        int64_t begin, int64_t end);

// All tensors are float32; logits [rows, vocab], the others [rows]. A negative target is on another
// rank: its log-prob is not written, and its own term in the gradient is omitted.
struct LogProbsForward {
  int64_t vocab = 0;
  const float* logits = nullptr;
  const int64_t* targets = nullptr;
  const float* temperatures = nullptr;
  float* log_probs = nullptr;
  float* entropy = nullptr;
  float* log_sum_exp = nullptr;  // of logits / temperature; or null
};
void LogProbsRows(const LogProbsForward& args, int64_t begin, int64_t end);

struct LogProbsBackward {
  int64_t vocab = 0;
  float* logits = nullptr;   // becomes the gradient of the head's products
  LogitTransform transform;  // that the logits went through; its bias has no part in this
  const int64_t* targets = nullptr;
  const float* temperatures = nullptr;
  const float* entropy = nullptr;
  const float* log_sum_exp = nullptr;
  const float* grad_log_probs = nullptr;
  const float* grad_entropy = nullptr;
};
void LogProbsBackwardRows(const LogProbsBackward& args, int64_t begin, int64_t end);

}  // namespace tandem::model::kernels

#endif  // TANDEM_COMMON_MODEL_KERNELS_LOG_PROBS_H_
