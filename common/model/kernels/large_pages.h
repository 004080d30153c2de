// Pages of 2 MiB for large memory. Products walk through megabytes; with pages of 4 KiB, TLB misses
// cost a twentieth of the time.
#ifndef TANDEM_COMMON_MODEL_KERNELS_LARGE_PAGES_H_
#define TANDEM_COMMON_MODEL_KERNELS_LARGE_PAGES_H_

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>

namespace tandem::model::kernels {

inline constexpr size_t kLargePageBytes = size_t{2} << 20;

// Advises the system to back the whole large pages within the memory with huge pages. If the advice
// is ignored or unsupported, everything still works. `data` is anonymous memory.
inline void WantLargePages(void* data, size_t size_bytes) {
#ifdef MADV_HUGEPAGE
  const auto begin =
      (reinterpret_cast<uintptr_t>(data) + kLargePageBytes - 1) / kLargePageBytes * kLargePageBytes;
  const auto end =
      (reinterpret_cast<uintptr_t>(data) + size_bytes) / kLargePageBytes * kLargePageBytes;
  if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
#endif
}

}  // namespace tandem::model::kernels

#endif  // TANDEM_COMMON_MODEL_KERNELS_LARGE_PAGES_H_
