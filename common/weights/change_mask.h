// Which elements of two buffers differ: the scan in front of a delta, at the speed of memory.
#ifndef TANDEM_COMMON_WEIGHTS_CHANGE_MASK_H_
#define TANDEM_COMMON_WEIGHTS_CHANGE_MASK_H_

#include <cstddef>
#include <cstdint>

namespace tandem::weights {

// Bit i % 64 of mask[i / 64] says whether element i of `base` and `next` differ in a bit; the last
// word ends in zeros. `element_size` is 2 or 4 bytes; the elements lie at any address.
void FindChanges(const std::byte* base, const std::byte* next, int64_t elements, int element_size,
                 uint64_t* mask);

}  // namespace tandem::weights

#endif  // TANDEM_COMMON_WEIGHTS_CHANGE_MASK_H_
