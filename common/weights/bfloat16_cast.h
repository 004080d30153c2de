// Casts float32 to bfloat16 at memory speed.
#ifndef TANDEM_COMMON_WEIGHTS_BFLOAT16_CAST_H_
#define TANDEM_COMMON_WEIGHTS_BFLOAT16_CAST_H_

#include <cstddef>
#include <cstdint>

namespace tandem::weights {

// Writes `elements` values of `from` as bfloat16 to `to`, which needs no alignment. Rounds to
// nearest, ties to even; every NaN becomes 0x7FC0 (like run_kernels.h on a device). Any thread.
void CastToBfloat16(const float* from, int64_t elements, std::byte* to);

}  // namespace tandem::weights

#endif  // TANDEM_COMMON_WEIGHTS_BFLOAT16_CAST_H_
