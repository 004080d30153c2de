// Memory files mapped so that their blocks of 2 MiB can be large pages: a weight update reads and
// writes every byte of a model, and with small ones spends a third of its time on page tables.
#ifndef TANDEM_COMMON_COMM_FILE_MAPPING_H_
#define TANDEM_COMMON_COMM_FILE_MAPPING_H_

#include <cstddef>
#include <cstdint>

namespace tandem::comm {

// Maps all of `file`, shared, at an address where large pages can begin; `protection` as for
// mmap(). Null, with errno, where it cannot. munmap() ends it.
std::byte* MapMemoryFile(int file, int64_t size_bytes, int protection);

// Makes large pages of a memory file that was just made and mapped so: all of its whole blocks are
// present then, as zeros. Does nothing where the system has none to give (before Linux 6.1). The
// system's setting for shared memory, which most leave at "never", does not count for this.
void ProvideLargePages(std::byte* data, int64_t size_bytes);

}  // namespace tandem::comm

#endif  // TANDEM_COMMON_COMM_FILE_MAPPING_H_
