// Returns memory to the system and keeps its addresses.
#ifndef TANDEM_COMMON_MODEL_RELEASE_PAGES_H_
#define TANDEM_COMMON_MODEL_RELEASE_PAGES_H_

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>

namespace tandem::model {

// Returns the whole pages within the memory, which must be anonymous and private, to the system.
// They read as zeros afterwards; writing allocates new ones.
inline void ReleasePages(void* data, size_t size_bytes) {
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto begin = (reinterpret_cast<uintptr_t>(data) + page - 1) / page * page;
  const auto end = (reinterpret_cast<uintptr_t>(data) + size_bytes) / page * page;
  if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_RELEASE_PAGES_H_
