// Passes over one row of logits, compiled once for each instruction set and chosen at run time.
#ifndef TANDEM_SERVICES_ROLLOUT_SAMPLER_ROW_KERNEL_H_
#define TANDEM_SERVICES_ROLLOUT_SAMPLER_ROW_KERNEL_H_

#include <cstdint>

#include "common/model/kernels/log_probs.h"
#include "services/rollout/sampler/candidates.h"

namespace tandem::rollout {

// A cumulative sum is kept for every so many entries.
using model::kernels::kSumBlock;

struct RowExtremes {
  float maximum;
  float minimum;
};
// NaN where an entry is NaN.
RowExtremes Extremes(const float* row, int64_t n);

// Returns the sum of exp((row[i] - maximum) * inverse_temperature); the sum of each kSumBlock
// entries goes to block_sums, where that is not null.
double SumExp(const float* row, int64_t n, float maximum, float inverse_temperature,
              double* block_sums);

// As SumExp, over the entries that rank at or before `last`.
double SumExpKept(const float* row, int64_t n, float maximum, float inverse_temperature,
                  Candidate last, double* block_sums);

// weights[i] = exp((row[i] - maximum) * inverse_temperature), the same values as are summed above.
void Exp(const float* row, int64_t n, float maximum, float inverse_temperature, float* weights);

// Appends to `out` the entries of at least `threshold`, in the order of ids, and returns how many;
// stops after the entry that fills `capacity` and says in `*next` where to go on, else n.
int64_t CollectAtLeast(const float* row, int64_t begin, int64_t n, float threshold, Candidate* out,
                       int64_t capacity, int64_t* next);

}  // namespace tandem::rollout

#endif  // TANDEM_SERVICES_ROLLOUT_SAMPLER_ROW_KERNEL_H_
