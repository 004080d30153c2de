#include "services/trainer/fsdp/tensor_memory.h"

#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdlib>
#include <limits>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/comm/shareable_memory.h"
#include "common/model/kernels/large_pages.h"

namespace tandem::trainer {
namespace {

// A block begins with its sizes; the tensor's bytes follow at the alignment that kernels expect.
struct Header {
  size_t tensor_bytes;
  size_t block_bytes;  // with the header; 0 where the block is the C library's
};
constexpr size_t kHeaderBytes = 64;
static_assert(sizeof(Header) <= kHeaderBytes);

// Smallest tensor with pages of its own.
constexpr size_t kSmallestMapped = size_t{64} << 10;
#if defined(__SANITIZE_ADDRESS__)
// Each tensor gets its own block, so that use after free is detected.
constexpr size_t kSmallestCached = std::numeric_limits<size_t>::max();
#else
constexpr size_t kSmallestCached = kSmallestMapped;
#endif
constexpr int64_t kSlackBytes = int64_t{64} << 20;

// Eight sizes to each power of two, so that lengths that differ a little share blocks.
size_t RoundUp(size_t size_bytes) {
  const size_t step = std::max(kSmallestCached / 8, std::bit_floor(size_bytes) / 8);
  return (size_bytes + step - 1) / step * step;
}

// The process's limits, if it has any: "; it may have 67108864 bytes of data (RLIMIT_DATA)".
std::string Allowance() {
  std::string text;
  const auto add = [&text](auto resource, const char* what) {
    rlimit limit{};
    if (getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return;
    absl::StrAppend(&text, "; the process may have ", limit.rlim_cur, " bytes of ", what);
  };
  add(RLIMIT_DATA, "private memory (RLIMIT_DATA, ulimit -d)");
  add(RLIMIT_AS, "addresses (RLIMIT_AS, ulimit -v)");
  return text;
}

// Blocks and their count. Any thread.
class Blocks {
 public:
  void* Take(size_t tensor_bytes) {
    const size_t wanted = tensor_bytes + kHeaderBytes;
    Header* header = nullptr;
    if (wanted < kSmallestCached) {
      void* block = nullptr;
      if (posix_memalign(&block, kHeaderBytes, wanted) == 0) {
        header = static_cast<Header*>(block);
        header->block_bytes = 0;
      }
    } else {
      header = TakeCached(RoundUp(wanted));
    }
    CheckFits(header, tensor_bytes);
    header->tensor_bytes = tensor_bytes;
    absl::MutexLock lock(&mu_);
    current_ += static_cast<int64_t>(tensor_bytes);
    peak_ = std::max(peak_, current_);
    return reinterpret_cast<std::byte*>(header) + kHeaderBytes;
  }

  void Return(void* data) {
    if (data == nullptr) return;
    Header* const header = reinterpret_cast<Header*>(static_cast<std::byte*>(data) - kHeaderBytes);
    absl::MutexLock lock(&mu_);
    current_ -= static_cast<int64_t>(header->tensor_bytes);
    if (header->block_bytes == 0) {
      std::free(header);
      return;
    }
    free_[header->block_bytes].push_back(header);
    cached_ += static_cast<int64_t>(header->block_bytes);
    ReleaseAbove(peak_ + peak_ / 4 + kSlackBytes - current_);
  }

  // Pages of their own, which nobody has written to.
  void* TakeFresh(size_t tensor_bytes) {
    void* data = nullptr;
    {
      absl::MutexLock lock(&mu_);
      data = Map(tensor_bytes);
    }
    CheckFits(data, tensor_bytes);
    Count(static_cast<int64_t>(tensor_bytes));
    return data;
  }

  void ReturnFresh(void* data, size_t tensor_bytes) {
    munmap(data, tensor_bytes);
    Count(-static_cast<int64_t>(tensor_bytes));
  }

  // Counts tensors in memory that is not ours.
  void Count(int64_t bytes) {
    absl::MutexLock lock(&mu_);
    current_ += bytes;
    peak_ = std::max(peak_, current_);
  }

  int64_t current() const {
    absl::MutexLock lock(&mu_);
    return current_;
  }
  int64_t peak() const {
    absl::MutexLock lock(&mu_);
    return peak_;
  }
  void ResetPeak() {
    absl::MutexLock lock(&mu_);
    peak_ = current_;
  }
  int64_t cached() const {
    absl::MutexLock lock(&mu_);
    return cached_;
  }

 private:
  // Null if the system has no more memory.
  Header* TakeCached(size_t block_bytes) {
    absl::MutexLock lock(&mu_);
    const auto found = free_.lower_bound(block_bytes);
    // Wastes at most a fourth of a block, where a new one would fault all its pages in.
    if (found != free_.end() && found->first <= block_bytes + block_bytes / 4) {
      Header* const header = found->second.back();
      found->second.pop_back();
      cached_ -= static_cast<int64_t>(found->first);
      if (found->second.empty()) free_.erase(found);
      return header;
    }
    Header* const header = static_cast<Header*>(Map(block_bytes));
    if (header != nullptr) header->block_bytes = block_bytes;
    return header;
  }

  // Maps zeros; null if the system has no more memory, even without the cache.
  void* Map(size_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    for (int attempt = 0; attempt < 2; ++attempt) {
      void* const block =
          mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (block != MAP_FAILED) {
        model::kernels::WantLargePages(block, bytes);
        return block;
      }
      ReleaseAbove(0);
    }
    return nullptr;
  }

  void CheckFits(const void* memory, size_t tensor_bytes) const {
    TORCH_CHECK_WITH(OutOfMemoryError, memory != nullptr, "a tensor of ", tensor_bytes,
                     " bytes does not fit in memory, beside the ", current(),
                     " bytes of tensors that are there", Allowance());
  }

  // The largest first: they are the fewest.
  void ReleaseAbove(int64_t limit) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    while (cached_ > limit && !free_.empty()) {
      const auto last = std::prev(free_.end());
      munmap(last->second.back(), last->first);
      cached_ -= static_cast<int64_t>(last->first);
      last->second.pop_back();
      if (last->second.empty()) free_.erase(last);
    }
  }

  mutable absl::Mutex mu_;
  std::map<size_t, std::vector<Header*>> free_ ABSL_GUARDED_BY(mu_);  // by block_bytes
  int64_t current_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t peak_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t cached_ ABSL_GUARDED_BY(mu_) = 0;
};

// Never destroyed: tensors of static storage outlive everything else.
Blocks& blocks() {
  static Blocks* const blocks = new Blocks;
  return *blocks;
}

void Free(void* data) { blocks().Return(data); }

class Allocator : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t size_bytes) override {
    if (size_bytes == 0) return {nullptr, nullptr, &Free, c10::Device(c10::kCPU)};
    void* const data = blocks().Take(size_bytes);
    return {data, data, &Free, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &Free; }
  void copy_data(void* to, const void* from, size_t size_bytes) const override {
    default_copy_data(to, from, size_bytes);
  }
};

}  // namespace

void TensorMemory::Install() {
  static std::once_flag once;
  std::call_once(once, [] {
    static Allocator* const allocator = new Allocator;
    c10::SetCPUAllocator(allocator, /*priority=*/100);
    comm::CountShareable([](int64_t bytes) { blocks().Count(bytes); });
  });
}

at::Tensor TensorMemory::Zeros(int64_t numel, at::ScalarType dtype) {
  const size_t bytes = static_cast<size_t>(numel) * c10::elementSize(dtype);
  if (bytes < kSmallestMapped) return at::zeros({numel}, dtype);
  void* const data = blocks().TakeFresh(bytes);
  return at::from_blob(
      data, {numel}, [bytes](void* freed) { blocks().ReturnFresh(freed, bytes); }, dtype);
}

int64_t TensorMemory::current_bytes() { return blocks().current(); }
int64_t TensorMemory::peak_bytes() { return blocks().peak(); }
void TensorMemory::ResetPeak() { blocks().ResetPeak(); }
int64_t TensorMemory::cached_bytes() { return blocks().cached(); }

}  // namespace tandem::trainer
