// Tensors with a known sum over the ranks of a group, which every rank can check.
#ifndef TANDEM_COMMON_PROBE_PROBE_PATTERN_H_
#define TANDEM_COMMON_PROBE_PROBE_PATTERN_H_

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace tandem::probe {

// The input of rank `rank`: float32 [count] on the CPU. Element i is i mod 1021 + rank: sums over
// up to kMaxProbeRanks ranks are integers that a float holds exactly, and neighbours and ranks all
// differ. Takes only the tensor's memory, which returns to the system when the tensor is destroyed;
// throws std::bad_alloc.
at::Tensor ProbePattern(int64_t count, int rank);

// Counts elements of `sum`, float32 [count] on the CPU, that are not the sum over ranks 0 to size -
// 1.
int64_t CountWrongElements(const at::Tensor& sum, int size);

}  // namespace tandem::probe

#endif  // TANDEM_COMMON_PROBE_PROBE_PATTERN_H_
