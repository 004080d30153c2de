// SimulatedMemory: the memory of the simulated devices, and pinned host memory.
//
// Both are mapped twice. The program has addresses of the first mapping: those of a device are
// PROT_NONE, so host code that follows one dies with a message; pinned memory is PROT_NONE while a
// queued copy writes it and read-only while one reads it. Streams use the second mapping
// (OnStream()).
//
// A freed block of a device goes back to its stream at once and joins its free neighbours, as
// LibTorch's caching allocator does: the next allocation on that stream may get it while queued work
// still uses it. Any thread.
#ifndef TANDEM_TESTS_SIMULATOR_MEMORY_H_
#define TANDEM_TESTS_SIMULATOR_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace tandem::testing {

class SimulatedMemory {
 public:
  static constexpr int kDevices = 8;
  static constexpr size_t kBytesOfDevice = size_t{1} << 30;
  static constexpr size_t kPinnedBytes = size_t{1} << 30;

  // Of the process; never destroyed.
  static SimulatedMemory& Get();

  // Throw c10::OutOfMemoryError. A size of 0 gives null.
  void* Allocate(int device, int64_t stream, size_t size_bytes);
  void Free(void* block);
  void* AllocatePinned(size_t size_bytes);
  void FreePinned(void* block);

  // Device of an address, or -1.
  int DeviceOf(const void* address) const;
  bool IsPinned(const void* address) const;
  // Whether the bytes lie in one block that is allocated now.
  bool IsAllocated(const void* address, size_t size_bytes) const;
  // The address under which streams find the byte.
  std::byte* OnStream(const void* address) const;

  enum class HostAccess { kAll, kRead, kNone };
  // Sets what host code may do with the pinned block that `address` lies in.
  void SetHostAccess(const void* address, HostAccess access);
  // Begin of the pinned block that the address lies in.
  const void* PinnedBlockOf(const void* address) const;

  size_t allocated_bytes(int device) const;
  size_t peak_bytes(int device) const;

 private:
  struct Block {
    size_t size_bytes = 0;
    int device = 0;
    int64_t stream = 0;
    bool allocated = false;
  };

  SimulatedMemory();
  void AddFree(uintptr_t address, const Block& block) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void RemoveFree(uintptr_t address) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The block that the address lies in, or the end.
  std::map<uintptr_t, Block>::const_iterator Find(const std::map<uintptr_t, Block>& blocks,
                                                  const void* address) const;

  const size_t device_bytes_ = kDevices * kBytesOfDevice;
  std::byte* host_ = nullptr;       // PROT_NONE
  std::byte* on_stream_ = nullptr;  // the same memory
  std::byte* pinned_ = nullptr;     // as the host sees it
  std::byte* pinned_on_stream_ = nullptr;

  mutable absl::Mutex mu_;
  std::map<uintptr_t, Block> blocks_ ABSL_GUARDED_BY(mu_);  // by address, allocated or free
  std::map<uintptr_t, Block> pinned_blocks_ ABSL_GUARDED_BY(mu_);
  // Free blocks of a device's stream, by size; of one size the latest first.
  std::map<std::pair<int, int64_t>, std::multimap<size_t, uintptr_t>> free_ ABSL_GUARDED_BY(mu_);
  size_t used_[kDevices] ABSL_GUARDED_BY(mu_) = {};  // of the device's addresses
  size_t pinned_used_ ABSL_GUARDED_BY(mu_) = 0;
  size_t allocated_[kDevices] ABSL_GUARDED_BY(mu_) = {};
  size_t peak_[kDevices] ABSL_GUARDED_BY(mu_) = {};
};

}  // namespace tandem::testing

#endif  // TANDEM_TESTS_SIMULATOR_MEMORY_H_
