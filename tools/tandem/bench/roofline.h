// What this machine can do at most, measured, and what a step of generation asks of it: the
// roofline that a speed is held against.
#ifndef TANDEM_TOOLS_TANDEM_BENCH_ROOFLINE_H_
#define TANDEM_TOOLS_TANDEM_BENCH_ROOFLINE_H_

#include <cstdint>

#include "common/model/model_spec.h"

namespace tandem::bench {

// Of all threads together; the best of several tries.
struct MachineRates {
  double read_bytes_per_second = 0;  // from memory, one after another, in large pages
  double flops_per_second = 0;       // fused multiply-adds of float32 in registers, 2 each
};

// Reads a buffer of `size_bytes`, so that caches help as much as they would help a model of that
// size. Takes about a second and as much memory.
MachineRates MeasureMachineRates(int64_t size_bytes, int threads);

// One step that samples a token of each of `batch` sequences, `context` tokens long.
struct StepCost {
  double bytes = 0;  // read at least: every weight of a product once, every key and value
  double flops = 0;

  double Seconds(const MachineRates& rates) const;
};
StepCost DecodeCost(const model::ModelSpec& spec, int64_t element_bytes, int64_t batch,
                    double context);

}  // namespace tandem::bench

#endif  // TANDEM_TOOLS_TANDEM_BENCH_ROOFLINE_H_
