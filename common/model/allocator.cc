#include "common/model/allocator.h"

#include <malloc.h>

#include <climits>
#include <cstdlib>

namespace tandem::model {

void TuneAllocator() {
  if (std::getenv("MALLOC_MMAP_THRESHOLD_") == nullptr) mallopt(M_MMAP_THRESHOLD, INT_MAX);
  if (std::getenv("MALLOC_TRIM_THRESHOLD_") == nullptr) mallopt(M_TRIM_THRESHOLD, INT_MAX);
  // glibc's per-thread arenas grow in heaps of 64 MiB and still map larger blocks.
  if (std::getenv("MALLOC_ARENA_MAX") == nullptr) mallopt(M_ARENA_MAX, 1);
}

}  // namespace tandem::model
