#include "common/model/worker_pool.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <utility>

#include "common/host/cpu_list.h"
#include "common/host/run_on_threads.h"
#include "hwy/cache_control.h"

// Declared by the OpenMP library whose threads LibTorch uses; affects only the calling thread.
extern "C" void omp_set_num_threads(int num_threads);

namespace tandem::model {
namespace {

// Polls of the state, with a pause in between, before a worker sleeps: some hundred microseconds,
// longer than the gap between two steps of a busy engine.
constexpr int kLooksBeforeSleep = 4000;
// Polls before a caller that waits for a worker yields its core.
constexpr int kLooksBeforeYield = 4000;
constexpr int64_t kMostThreads = 0xFFFF;

thread_local WorkerPool* current = nullptr;
thread_local bool within = false;  // this thread runs a pool's body

uint64_t NextOf(uint64_t state) { return state & 0xFFFF; }
uint64_t RangesOf(uint64_t state) { return state >> 16 & 0xFFFF; }
uint64_t GenerationOf(uint64_t state) { return state >> 32; }
bool HasRange(uint64_t state) { return NextOf(state) < RangesOf(state); }

}  // namespace

WorkerPool::WorkerPool(int num_threads, std::vector<int> cpus) : cpus_(std::move(cpus)) {
  const int64_t workers = std::clamp<int64_t>(num_threads, 1, kMostThreads) - 1;
  Pin(0);
  workers_ = host::StartThreads(static_cast<size_t>(workers), [this](size_t i) {
    Pin(i + 1);
    Work();
  });
}

void WorkerPool::Pin(size_t thread) const {
  if (thread < cpus_.size()) host::PinThisThread(cpus_[thread]).IgnoreError();
}

WorkerPool::~WorkerPool() {
  // Before the new generation: a worker that wakes for it must find this set.
  stopping_ = true;
  state_ += uint64_t{1} << 32;  // new generation, without ranges
  state_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void WorkerPool::Work() {
  within = true;
  int looks = 0;
  for (;;) {
    const uint64_t state = state_.load();
    if (HasRange(state)) {
      DoRanges();
      looks = 0;
      continue;
    }
    if (stopping_) return;
    if (++looks < kLooksBeforeSleep) {
      hwy::Pause();
      continue;
    }
    // Counts itself before it waits, while Run() stores the state before it reads the count, all
    // sequentially consistent: either Run() sees a sleeper, or wait() sees the new state.
    ++num_asleep_;
    state_.wait(state);
    --num_asleep_;
    looks = 0;
  }
}

void WorkerPool::DoRanges() {
  uint64_t state = state_.load();
  while (HasRange(state)) {
    // Acquires what Run() wrote before the state: count_ and body_. It fails from the state
    // of an earlier section, whose generation differs.
    if (!state_.compare_exchange_weak(state, state + 1)) continue;
    // The section cannot end before this range is done, so count_ and body_ stay unchanged.
    const auto ranges = static_cast<int64_t>(RangesOf(state));
    const auto range = static_cast<int64_t>(NextOf(state));
    try {
      (*body_)(count_ * range / ranges, count_ * (range + 1) / ranges);
    } catch (...) {
      const std::lock_guard<std::mutex> lock(error_mu_);
      if (error_ == nullptr) error_ = std::current_exception();
    }
    // The caller that reads the last of these sees everything that the bodies wrote.
    ++num_done_;
    state = state_.load();
  }
}

void WorkerPool::Run(int64_t count, const kernels::RangeBody& body) {
  const int64_t ranges = std::min<int64_t>(count, num_threads());
  // Within a body the members hold that section, and the other workers may all be busy with it.
  if (ranges <= 1 || within) {
    if (count > 0) body(0, count);
    return;
  }
  // No worker reads these yet: the previous section is done, and this one begins with the state.
  count_ = count;
  body_ = &body;
  const int64_t done_at_end = num_done_ + ranges;
  const uint64_t generation = GenerationOf(state_.load()) + 1;
  state_ = generation << 32 | static_cast<uint64_t>(ranges) << 16;
  if (num_asleep_ > 0) state_.notify_all();
  within = true;
  DoRanges();
  within = false;
  for (int looks = 0; num_done_ < done_at_end; ++looks) {
    // A worker that the system took off its core may need ours. No deadline: bodies only compute.
    if (looks < kLooksBeforeYield) {
      hwy::Pause();
    } else {
      std::this_thread::yield();
    }
  }
  const std::lock_guard<std::mutex> lock(error_mu_);
  if (error_ != nullptr) std::rethrow_exception(std::exchange(error_, nullptr));
}

UseWorkerPool::UseWorkerPool(WorkerPool* pool)
    : before_(std::exchange(current, pool)), aten_threads_(at::get_num_threads()) {
  if (pool != nullptr) omp_set_num_threads(1);
}

UseWorkerPool::~UseWorkerPool() {
  current = before_;
  omp_set_num_threads(aten_threads_);
}

WorkerPool* CurrentWorkerPool() { return current; }

int NumThreads() { return current == nullptr ? at::get_num_threads() : current->num_threads(); }

}  // namespace tandem::model
