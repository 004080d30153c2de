#include "common/host/run_on_threads.h"

#include <atomic>
#include <exception>
#include <new>
#include <system_error>
#include <thread>
#include <vector>

namespace tandem::host {
namespace {

// Starts threads until there are num_threads in `threads`. Throws what std::thread throws.
void AddThreads(size_t num_threads, const std::function<void(size_t)>& work,
                std::vector<std::thread>& threads) {
  threads.reserve(num_threads);
  for (size_t i = 0; i < num_threads; ++i) threads.emplace_back(work, i);
}

}  // namespace

std::vector<std::thread> StartThreads(size_t num_threads, const std::function<void(size_t)>& work) {
  std::vector<std::thread> threads;
  try {
    AddThreads(num_threads, work, threads);
  } catch (const std::system_error&) {
    // The limit on threads or memory is reached.
  } catch (const std::bad_alloc&) {
  }
  return threads;
}

void RunTogether(size_t num_threads, absl::FunctionRef<void(size_t)> work) {
  enum Order { kWait, kGo, kLeave };
  std::atomic<int> num_ready{0};
  std::atomic<int> order{kWait};
  std::vector<std::thread> others;
  const auto end = [&](Order told) {
    order = told;
    order.notify_all();
    if (told == kGo) work(0);
    for (std::thread& thread : others) thread.join();
  };
  const size_t num_others = num_threads == 0 ? 0 : num_threads - 1;
  try {
    AddThreads(
        num_others,
        [&](size_t i) {
          ++num_ready;
          num_ready.notify_one();
          order.wait(kWait);
          if (order == kGo) work(i + 1);
        },
        others);
  } catch (...) {
    end(kLeave);
    throw;
  }
  for (int ready = num_ready; static_cast<size_t>(ready) < num_others; ready = num_ready) {
    num_ready.wait(ready);
  }
  end(kGo);
}

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
  // Where they are fewer, those that run do the others' part.
  std::vector<std::thread> others =
      StartThreads(num_threads == 0 ? 0 : num_threads - 1, [&](size_t) { run(); });
  run();
  for (std::thread& thread : others) thread.join();
  if (failure != nullptr) std::rethrow_exception(failure);
}

}  // namespace tandem::host
