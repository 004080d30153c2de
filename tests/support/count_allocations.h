// Counts this program's allocations, whichever way they are asked for. To be included by one source
// of a program, whose allocation functions it defines; not with a sanitizer, which has its own.
#ifndef TANDEM_TESTS_SUPPORT_COUNT_ALLOCATIONS_H_
#define TANDEM_TESTS_SUPPORT_COUNT_ALLOCATIONS_H_

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>

#include "tests/support/sanitizer.h"

namespace tandem::testing {

inline std::atomic<int64_t> num_allocations{0};  // of all threads

}  // namespace tandem::testing

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

extern "C" {

void* __libc_malloc(size_t size);
void* __libc_calloc(size_t count, size_t size);
void* __libc_realloc(void* memory, size_t size);
void* __libc_memalign(size_t alignment, size_t size);

void* malloc(size_t size) {
  ++tandem::testing::num_allocations;
  return __libc_malloc(size);
}

void* calloc(size_t count, size_t size) {
  ++tandem::testing::num_allocations;
  return __libc_calloc(count, size);
}

void* realloc(void* memory, size_t size) {
  ++tandem::testing::num_allocations;
  return __libc_realloc(memory, size);
}

void* memalign(size_t alignment, size_t size) {
  ++tandem::testing::num_allocations;
  return __libc_memalign(alignment, size);
}

void* aligned_alloc(size_t alignment, size_t size) { return memalign(alignment, size); }

int posix_memalign(void** memory, size_t alignment, size_t size) {
  *memory = memalign(alignment, size);
  return *memory == nullptr && size > 0 ? ENOMEM : 0;
}

}  // extern "C"

#endif

#endif  // TANDEM_TESTS_SUPPORT_COUNT_ALLOCATIONS_H_
