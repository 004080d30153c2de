// Runs one function on several threads, and says what happens where the system starts no more.
//
//   std::atomic<size_t> next{0};
//   host::RunOnThreads(8, [&] {
//     for (size_t i = next++; i < calls.size(); i = next++) calls[i].Run();
//   });
#ifndef TANDEM_COMMON_HOST_RUN_ON_THREADS_H_
#define TANDEM_COMMON_HOST_RUN_ON_THREADS_H_

#include <cstddef>
#include <functional>
#include <thread>
#include <vector>

#include "absl/functional/function_ref.h"

namespace tandem::host {

// Calls `work` in the calling thread and in up to num_threads - 1 others, and returns when all have
// returned. A limit on threads or memory (pids.max, ulimit) may leave fewer, at worst the calling
// thread alone, so `work` takes pieces until none is left, and waits for none of the other threads.
// An exception of one of them is thrown again here, when all have ended.
void RunOnThreads(size_t num_threads, absl::FunctionRef<void()> work);

// Calls work(0) to work(num_threads - 1) at the same time, work(0) in the calling thread, and returns
// when all have returned: none begins before all threads are there. `work` must not throw. Throws
// std::system_error or std::bad_alloc, before any work, where the system does not start so many.
void RunTogether(size_t num_threads, absl::FunctionRef<void(size_t)> work);

// Starts up to `num_threads` threads, thread i with work(i), and returns those that the system has
// started; the caller joins them. `work` must not throw, and is copied.
std::vector<std::thread> StartThreads(size_t num_threads, const std::function<void(size_t)>& work);

}  // namespace tandem::host

#endif  // TANDEM_COMMON_HOST_RUN_ON_THREADS_H_
