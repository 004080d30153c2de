// CountedPool: the sizes of flat buffers. A released buffer is kept for the next one of its size, as
// the trainer's BufferPool keeps it.
#ifndef TANDEM_TOOLS_TANDEM_PLAN_COUNTED_POOL_H_
#define TANDEM_TOOLS_TANDEM_PLAN_COUNTED_POOL_H_

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "tools/tandem/plan/memory_ledger.h"

namespace tandem::plan {

// Single-threaded.
class CountedPool {
 public:
  struct Buffer {
    int64_t numel = 0;
    int64_t element_bytes = 0;
    Size size;
  };

  // The ledger must outlive the pool.
  explicit CountedPool(MemoryLedger& ledger) : ledger_(ledger) {}

  // A buffer that is reused stays of the kind for which it was first taken.
  Buffer Acquire(MemoryKind kind, int64_t numel, int64_t element_bytes) {
    std::vector<Size>& free = free_[{numel, element_bytes}];
    if (free.empty()) {
      return {numel, element_bytes, ledger_.Take(kind, numel * element_bytes)};
    }
    Buffer buffer{numel, element_bytes, std::move(free.back())};
    free.pop_back();
    return buffer;
  }
  void Release(Buffer buffer) {
    free_[{buffer.numel, buffer.element_bytes}].push_back(std::move(buffer.size));
  }

 private:
  MemoryLedger& ledger_;
  std::map<std::pair<int64_t, int64_t>, std::vector<Size>> free_;  // by elements, bytes of one
};

}  // namespace tandem::plan

#endif  // TANDEM_TOOLS_TANDEM_PLAN_COUNTED_POOL_H_
