// How close what was measured comes to what the GPU's own measured rates allow.
#ifndef TANDEM_TOOLS_TANDEM_GPU_CHECK_LIMITS_H_
#define TANDEM_TOOLS_TANDEM_GPU_CHECK_LIMITS_H_

#include <cstdint>

#include "tools/tandem/bench/roofline.h"

namespace tandem::gpu_check {

// A device-to-device copy reads and writes every byte: the bytes that its memory moves in a second.
double CopyTraffic(double copied_bytes, double seconds);

// Flops per second of a product [n, n] x [n, n].
double ProductRate(int64_t n, double seconds);

// Model flops utilisation: of the measured rate of matrix products, not of a data sheet's. 0 if
// that is not known.
double Utilisation(double flops_per_second, const bench::MachineRates& rates);

// Tokens per second of decoding steps of `batch` sequences, each of which costs `step`, at the
// measured rates: of memory for the weights and the cache, or of products if these take longer. 0
// if a rate is not known.
double DecodeLimit(const bench::StepCost& step, int64_t batch, const bench::MachineRates& rates);

}  // namespace tandem::gpu_check

#endif  // TANDEM_TOOLS_TANDEM_GPU_CHECK_LIMITS_H_
