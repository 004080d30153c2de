// Runs one function on several threads, on fewer where the system starts no more.
//
//   std::atomic<size_t> next{0};
//   host::RunOnThreads(8, [&] {
//     for (size_t i = next++; i < calls.size(); i = next++) calls[i].Run();
//   });
#ifndef TANDEM_COMMON_HOST_RUN_ON_THREADS_H_
#define TANDEM_COMMON_HOST_RUN_ON_THREADS_H_

#include <cstddef>

#include "absl/functional/function_ref.h"

namespace tandem::host {

// Calls `work` in the calling thread and in up to num_threads - 1 others, and returns when all have
// returned. A limit on threads or memory (pids.max, ulimit) may leave fewer, at worst the calling
// thread alone, so `work` takes pieces until none is left, and waits for none of the other threads.
// An exception of one of them is thrown again here, when all have ended.
void RunOnThreads(size_t num_threads, absl::FunctionRef<void()> work);

}  // namespace tandem::host

#endif  // TANDEM_COMMON_HOST_RUN_ON_THREADS_H_
