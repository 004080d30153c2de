// WorkerPool: threads that stay awake between the parallel sections of a step. A step of a small
// model has some thirty sections of a few microseconds each. OpenMP puts its threads to sleep
// between them when the process has more threads than cores, and waking one costs as much as a
// section.
//
//   WorkerPool pool(at::get_num_threads());
//   const UseWorkerPool use(&pool);    // this thread's loops of cpu_dispatch.h now run in it
//   RunStep();
#ifndef TANDEM_COMMON_MODEL_WORKER_POOL_H_
#define TANDEM_COMMON_MODEL_WORKER_POOL_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "common/model/kernels/gemm.h"

namespace tandem::model {

// One thread at a time calls Run(). Workers sleep after a short while without work. The caller
// executes ranges that no worker has started, so on a busy machine a pool is no slower than one
// thread.
class WorkerPool {
 public:
  // The caller counts as one of `num_threads`; the pool starts the others, fewer where a limit on
  // threads or memory leaves fewer. Given `cpus`, pins the
  // calling thread to the first and each worker to the next, until the list ends; skips a CPU that
  // the process may not use.
  explicit WorkerPool(int num_threads, std::vector<int> cpus = {});
  // No Run() may be in progress.
  ~WorkerPool();

  int num_threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls body(begin, end) for ranges that cover [0, count), one per thread and of equal length if
  // possible. Returns when all are done; rethrows an exception of a body. Within a body it calls
  // body(0, count).
  void Run(int64_t count, const kernels::RangeBody& body);

 private:
  static constexpr size_t kCacheLineBytes = 64;

  void Work();
  void Pin(size_t thread) const;
  // Runs ranges of the current section until none is left.
  void DoRanges();

  // Generation of the section (32 bits), its number of ranges and the next range (16 bits each). A
  // thread claims a range by a compare-and-swap that adds one, which fails if the section has
  // changed.
  //
  // Workers poll it, so it shares a cache line with what they read once it changes, and with nothing that
  // another thread writes during a section.
  alignas(kCacheLineBytes) std::atomic<uint64_t> state_{0};
  int64_t count_ = 0;                         // of the section
  const kernels::RangeBody* body_ = nullptr;  // of the section
  std::atomic<int> num_asleep_{0};
  std::atomic<bool> stopping_{false};
  // Ranges done in all sections: each thread that ends one writes it, and the caller polls it.
  alignas(kCacheLineBytes) std::atomic<int64_t> num_done_{0};
  alignas(kCacheLineBytes) std::mutex error_mu_;
  std::exception_ptr error_;  // guarded by error_mu_
  const std::vector<int> cpus_;
  std::vector<std::thread> workers_;
};

// During its lifetime, loops that the constructing thread starts run in the pool, and ATen's loops in
// that thread alone: ATen's threads would spin on the pool's cores. Not so the matrix products that
// ATen gives to MKL: they start MKL's own threads, and both then wait for each other's cores. A step
// multiplies with kernels/gemm.h instead, in the pool (see absorbed_heads.cc). Null: all in ATen's
// threads.
class UseWorkerPool {
 public:
  explicit UseWorkerPool(WorkerPool* pool);
  ~UseWorkerPool();
  UseWorkerPool(const UseWorkerPool&) = delete;
  UseWorkerPool& operator=(const UseWorkerPool&) = delete;

 private:
  WorkerPool* const before_;
  const int aten_threads_;
};

// The pool in use on this thread, or null.
WorkerPool* CurrentWorkerPool();

// Number of threads of a loop of cpu_dispatch.h on this thread: the pool's, or else ATen's.
int NumThreads();

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_WORKER_POOL_H_
