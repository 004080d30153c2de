// Maps memory files so that they can use 2 MiB huge pages. A weight update reads and writes every
// byte of a model, and with small pages spends a third of its time on page tables.
#ifndef TANDEM_COMMON_COMM_FILE_MAPPING_H_
#define TANDEM_COMMON_COMM_FILE_MAPPING_H_

#include <cstddef>
#include <cstdint>

namespace tandem::comm {

// Maps all of `file`, shared, at a huge-page-aligned address; `protection` as for mmap(). Null,
// with errno set, on failure. Undo with munmap().
std::byte* MapMemoryFile(int file, int64_t size_bytes, int protection);

// Backs a newly created and mapped memory file with huge pages: all of its full 2 MiB blocks are
// then resident, as zeros. Does nothing if the system has none to give (before Linux 6.1). Does not
// depend on the system's huge-page setting for shared memory, which is usually "never".
void ProvideLargePages(std::byte* data, int64_t size_bytes);

}  // namespace tandem::comm

#endif  // TANDEM_COMMON_COMM_FILE_MAPPING_H_
