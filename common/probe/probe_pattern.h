// Tensors whose sum over the ranks of a group is known, so that every rank can check it.
#ifndef TANDEM_COMMON_PROBE_PROBE_PATTERN_H_
#define TANDEM_COMMON_PROBE_PROBE_PATTERN_H_

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace tandem::probe {

// What rank `rank` puts in: float32 [count] on the CPU. Element i is i mod 1021 + rank: sums over
// up to kMaxProbeRanks ranks are whole numbers that a float holds exactly, and neither neighbours
// nor ranks are alike. Takes no memory but the tensor's, which the system has again when it ends;
// throws std::bad_alloc.
at::Tensor ProbePattern(int64_t count, int rank);

// Elements of `sum`, float32 [count] on the CPU, that are not the sum over ranks 0 to size - 1.
int64_t CountWrongElements(const at::Tensor& sum, int size);

}  // namespace tandem::probe

#endif  // TANDEM_COMMON_PROBE_PROBE_PATTERN_H_
