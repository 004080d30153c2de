// Finds the elements that differ between two buffers, at memory speed: the scan before delta
// encoding.
#ifndef TANDEM_COMMON_WEIGHTS_CHANGE_MASK_H_
#define TANDEM_COMMON_WEIGHTS_CHANGE_MASK_H_

#include <cstddef>
#include <cstdint>

namespace tandem::weights {

// Sets bit i % 64 of mask[i / 64] if element i of `base` and `next` differ in any bit; the unused
// bits of the last word are 0. `element_size` is 2 or 4 bytes; the buffers need no alignment.
void FindChanges(const std::byte* base, const std::byte* next, int64_t elements, int element_size,
                 uint64_t* mask);

}  // namespace tandem::weights

#endif  // TANDEM_COMMON_WEIGHTS_CHANGE_MASK_H_
