// The roofline of generation: the machine's measured peak rates, and the bytes and flops of a
// decoding step.
#ifndef TANDEM_TOOLS_TANDEM_BENCH_ROOFLINE_H_
#define TANDEM_TOOLS_TANDEM_BENCH_ROOFLINE_H_

#include <cstdint>

#include "common/model/model_spec.h"

namespace tandem::bench {

// Rates of all threads together; the best of several tries.
struct MachineRates {
  double read_bytes_per_second = 0;  // from memory, sequentially, in large pages
  double flops_per_second = 0;       // fused multiply-adds of float32 in registers, 2 each
};

// Reads a buffer of `size_bytes`, so that caches help as much as with a model of that size. Takes
// about a second and `size_bytes` of memory.
MachineRates MeasureMachineRates(int64_t size_bytes, int threads);

// The cost of one step that samples a token for each of `batch` sequences of `context` tokens.
struct StepCost {
  // Minimum read: every weight of a matrix product once, of experts those that the rows reach, and
  // every key and value.
  double bytes = 0;
  double flops = 0;

  double Seconds(const MachineRates& rates) const;
};
StepCost DecodeCost(const model::ModelSpec& spec, int64_t element_bytes, int64_t batch,
                    double context);

}  // namespace tandem::bench

#endif  // TANDEM_TOOLS_TANDEM_BENCH_ROOFLINE_H_
