#include "common/host/run_on_threads.h"

#include <atomic>
#include <exception>
#include <new>
#include <system_error>
#include <thread>
#include <vector>

namespace tandem::host {

void RunOnThreads(size_t num_threads, absl::FunctionRef<void()> work) {
  std::atomic<bool> failed{false};
  std::exception_ptr failure;  // written once, read after all threads have ended
  const auto run = [&] {
    try {
      work();
    } catch (...) {
      if (!failed.exchange(true)) failure = std::current_exception();
    }
  };
  std::vector<std::thread> others;
  try {
    for (size_t i = 1; i < num_threads; ++i) others.emplace_back(run);
  } catch (const std::system_error&) {
    // The threads that run do the others' part.
  } catch (const std::bad_alloc&) {
  }
  run();
  for (std::thread& thread : others) thread.join();
  if (failure != nullptr) std::rethrow_exception(failure);
}

}  // namespace tandem::host
