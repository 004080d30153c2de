#include "common/comm/file_mapping.h"

#include <sys/mman.h>

#include <cerrno>

namespace tandem::comm {
namespace {

constexpr uintptr_t kLargePageBytes = uintptr_t{2} << 20;
constexpr uintptr_t kSmallPageBytes = 4096;
// From linux/mman.h, which older C libraries lack.
constexpr int kCollapse = 25;

uintptr_t RoundUp(uintptr_t value, uintptr_t to) { return (value + to - 1) / to * to; }

}  // namespace

std::byte* MapMemoryFile(int file, int64_t size_bytes, int protection) {
  const uintptr_t size = RoundUp(static_cast<uintptr_t>(size_bytes), kSmallPageBytes);
  // Large pages need an address that is a multiple of their size: reserves enough room to find one.
  void* const room = mmap(nullptr, size + kLargePageBytes, PROT_NONE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (room == MAP_FAILED) return nullptr;
  const auto begin = reinterpret_cast<uintptr_t>(room);
  const uintptr_t end = begin + size + kLargePageBytes;
  const uintptr_t data = RoundUp(begin, kLargePageBytes);
  if (mmap(reinterpret_cast<void*>(data), static_cast<size_t>(size_bytes), protection,
           MAP_SHARED | MAP_FIXED, file, /*offset=*/0) == MAP_FAILED) {
    const int error = errno;
    munmap(room, end - begin);
    errno = error;
    return nullptr;
  }
  if (data > begin) munmap(room, data - begin);
  if (end > data + size) munmap(reinterpret_cast<void*>(data + size), end - data - size);
  return reinterpret_cast<std::byte*>(data);
}

void ProvideLargePages(std::byte* data, int64_t size_bytes) {
  const uintptr_t blocks = static_cast<uintptr_t>(size_bytes) / kLargePageBytes;
  if (blocks == 0) return;
  // The kernel skips a block without any page as a hole. One touched page is enough: collapsing
  // zero-fills the others faster than touching each.
  for (uintptr_t block = 0; block < blocks; ++block) {
    *reinterpret_cast<volatile std::byte*>(data + block * kLargePageBytes) = std::byte{0};
  }
  // Worth the wait: with small pages, a copy of a shard takes twice as long.
  madvise(data, blocks * kLargePageBytes, kCollapse);
}

}  // namespace tandem::comm
