#include "common/io/release_pages.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>

namespace tandem::io {

void ReleasePages(absl::Span<const std::byte> bytes) {
  if (bytes.empty()) return;
  const uintptr_t page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const uintptr_t begin = reinterpret_cast<uintptr_t>(bytes.data()) / page * page;
  const uintptr_t end = reinterpret_cast<uintptr_t>(bytes.data()) + bytes.size();
  ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

}  // namespace tandem::io
