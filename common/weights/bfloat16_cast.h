// Float32 to bfloat16, as fast as memory is read.
#ifndef TANDEM_COMMON_WEIGHTS_BFLOAT16_CAST_H_
#define TANDEM_COMMON_WEIGHTS_BFLOAT16_CAST_H_

#include <cstddef>
#include <cstdint>

namespace tandem::weights {

// `elements` of `from` as bfloat16 at `to`, which may lie at any address: to the nearest, ties to
// even, and every NaN as 0x7FC0 (as run_kernels.h does it on a device). Any thread.
void CastToBfloat16(const float* from, int64_t elements, std::byte* to);

}  // namespace tandem::weights

#endif  // TANDEM_COMMON_WEIGHTS_BFLOAT16_CAST_H_
