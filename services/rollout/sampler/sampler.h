// The sampler: from a row of logits to a token and its log-probs, without a sort of the vocabulary
// and without noise for every entry of it.
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

namespace tandem::rollout {

// One token to draw. Several may name the same row of logits, as the samples of a prompt do.
struct SampleRow {
  int64_t row = 0;
  FilterParams params;
  double uniform = 0.0;  // in [0, 1)
};

struct SampledToken {
  int32_t id = -1;                 // -1: the row has logits that are not finite
  float logprob = 0.0f;            // log softmax(logits)[id]
  float processed_logprob = 0.0f;  // log softmax(logits / temperature)[id]; as logprob at 0
};

// logits: [.., vocab_size] rows. A token is the inverse of the cumulative distribution at
// `uniform`, walked in the order of ids. Rows are shared among ATen's threads; each is computed by
// one thread in a fixed order, so the result depends on the row, its parameters and `uniform`
// alone.
void Sample(const float* logits, int64_t vocab_size, absl::Span<const SampleRow> rows,
            absl::Span<SampledToken> out);

// Of logits on any device, float32 [.., vocab], contiguous: where they lie (device_sampler.h), or
// else as above. Throws as ATen does.
void Sample(const at::Tensor& logits, absl::Span<const SampleRow> rows,
            absl::Span<SampledToken> out);

}  // namespace tandem::rollout

#endif  // TANDEM_SERVICES_ROLLOUT_SAMPLER_SAMPLER_H_
