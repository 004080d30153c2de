// The sampler: draws a token with its log-probs from a row of logits, without sorting the
// vocabulary and without per-entry noise.
//
//   std::vector<SampleRow> rows = {{.row = 0, .params = {.temperature = 0.7, .top_k = 50},
//                                   .uniform = Uniform(seed, index, position)}};
//   std::vector<SampledToken> tokens(rows.size());
//   Sample(logits.const_data_ptr<float>(), vocab_size, rows, absl::MakeSpan(tokens));
#ifndef TANDEM_SERVICES_ROLLOUT_SAMPLER_SAMPLER_H_
#define TANDEM_SERVICES_ROLLOUT_SAMPLER_SAMPLER_H_

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "absl/types/span.h"
#include "services/rollout/sampler/filter_params.h"
#include "services/rollout/sampler/logit_adjustments.h"

namespace tandem::rollout {

// One token to draw. Several may use the same row of logits, like the samples of a prompt.
struct SampleRow {
  int64_t row = 0;
  FilterParams params;
  double uniform = 0.0;                           // in [0, 1)
  const LogitAdjustments* adjustments = nullptr;  // null: the logits as they are
  // Ids that are not drawn, fewer than the vocabulary has. Log-probs are those of all tokens. Outlives
  // the call.
  absl::Span<const int32_t> forbidden;
};

struct SampledToken {
  int32_t id = -1;       // -1: the row has non-finite logits
  float logprob = 0.0f;  // log softmax(logits)[id]
  // log softmax(adjusted logits / temperature)[id]; at temperature 0 not divided.
  float processed_logprob = 0.0f;
};

// logits: [.., vocab_size] rows. Draws by inverting the cumulative distribution, in id order, at
// `uniform`. ATen's threads share the rows; one thread computes a row in a fixed order, so the
// result depends only on the row, its parameters and `uniform`.
void Sample(const float* logits, int64_t vocab_size, absl::Span<const SampleRow> rows,
            absl::Span<SampledToken> out);

// The same for logits on any device, float32 [.., vocab], contiguous: on the device if it has a
// kernel (device_sampler.h), else on the CPU. Tokens with adjustments, and those for which a forbidden
// one was drawn, are drawn on the CPU from copies of their rows; the others as if those were not
// there. Throws like ATen.
void Sample(const at::Tensor& logits, absl::Span<const SampleRow> rows,
            absl::Span<SampledToken> out);

}  // namespace tandem::rollout

#endif  // TANDEM_SERVICES_ROLLOUT_SAMPLER_SAMPLER_H_
