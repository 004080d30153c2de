#include "services/trainer/fsdp/tensor_memory.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>
#include <malloc.h>

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <mutex>

namespace tandem::trainer {
namespace {

std::atomic<int64_t> current{0};
std::atomic<int64_t> peak{0};

// A block begins with its size; the tensor's bytes follow at the alignment that kernels expect.
constexpr size_t kHeaderBytes = 64;

void Free(void* data) {
  if (data == nullptr) return;
  std::byte* const block = static_cast<std::byte*>(data) - kHeaderBytes;
  current.fetch_sub(static_cast<int64_t>(*reinterpret_cast<size_t*>(block)),
                    std::memory_order_relaxed);
  std::free(block);
}

class CountingAllocator : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t size_bytes) override {
    if (size_bytes == 0) return {nullptr, nullptr, &Free, c10::Device(c10::kCPU)};
    void* block = nullptr;
    const int error = posix_memalign(&block, kHeaderBytes, size_bytes + kHeaderBytes);
    TORCH_CHECK_WITH(OutOfMemoryError, error == 0, "a tensor of ", size_bytes,
                     " bytes does not fit in memory, beside the ", TensorMemory::current_bytes(),
                     " bytes of tensors that are there");
    *static_cast<size_t*>(block) = size_bytes;
    const int64_t now = current.fetch_add(static_cast<int64_t>(size_bytes), std::memory_order_relaxed) +
                        static_cast<int64_t>(size_bytes);
    int64_t seen = peak.load(std::memory_order_relaxed);
    while (now > seen && !peak.compare_exchange_weak(seen, now, std::memory_order_relaxed)) {
    }
    void* const data = static_cast<std::byte*>(block) + kHeaderBytes;
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
    static CountingAllocator* const allocator = new CountingAllocator;
    c10::SetCPUAllocator(allocator, /*priority=*/100);
    // Never hand memory back to the system: what a step needs, the next one needs again.
    mallopt(M_MMAP_THRESHOLD, 1 << 30);
    mallopt(M_TRIM_THRESHOLD, 0x7fffffff);
    mallopt(M_TOP_PAD, 64 << 20);
  });
}

int64_t TensorMemory::current_bytes() { return current.load(std::memory_order_relaxed); }
int64_t TensorMemory::peak_bytes() { return peak.load(std::memory_order_relaxed); }

}  // namespace tandem::trainer
