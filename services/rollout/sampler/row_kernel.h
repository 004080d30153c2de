// Passes over one row of logits, compiled for each instruction set and selected at run time.
#ifndef TANDEM_SERVICES_ROLLOUT_SAMPLER_ROW_KERNEL_H_
#define TANDEM_SERVICES_ROLLOUT_SAMPLER_ROW_KERNEL_H_

#include <cstdint>

#include "common/model/kernels/log_probs.h"
#include "services/rollout/sampler/candidates.h"

namespace tandem::rollout {

// Entries per stored partial sum.
using model::kernels::kSumBlock;

struct RowExtremes {
  float maximum;
  float minimum;
};
// NaN if any entry is NaN.
RowExtremes Extremes(const float* row, int64_t n);

// Returns the sum of exp((row[i] - maximum) * inverse_temperature); writes the sum of each
// kSumBlock entries to block_sums, unless null.
double SumExp(const float* row, int64_t n, float maximum, float inverse_temperature,
              double* block_sums);

// Like SumExp(), over the entries that rank at or before `last`.
double SumExpKept(const float* row, int64_t n, float maximum, float inverse_temperature,
                  Candidate last, double* block_sums);

// weights[i] = exp((row[i] - maximum) * inverse_temperature), the same values that SumExp() adds.
void Exp(const float* row, int64_t n, float maximum, float inverse_temperature, float* weights);

// Writes the entries of at least `threshold` to `out`, in id order, and returns their number. Stops
// after the entry that fills `capacity`; sets `*next` to where to continue, or n.
int64_t CollectAtLeast(const float* row, int64_t begin, int64_t n, float threshold, Candidate* out,
                       int64_t capacity, int64_t* next);

}  // namespace tandem::rollout

#endif  // TANDEM_SERVICES_ROLLOUT_SAMPLER_ROW_KERNEL_H_
