// WorkerPool: threads that stay awake between the parallel sections of a step. A step of a small
// model has some thirty sections of a few microseconds each; OpenMP puts its threads to sleep
// between them as soon as the process has more threads than cores, and waking one costs as much as
// a section.
//
//   WorkerPool pool(at::get_num_threads());
//   const UseWorkerPool use(&pool);    // this thread's loops of cpu_dispatch.h now run in it
//   runner->Run(...);
#ifndef TANDEM_COMMON_MODEL_WORKER_POOL_H_
#define TANDEM_COMMON_MODEL_WORKER_POOL_H_

#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "common/model/kernels/gemm.h"

namespace tandem::model {

// Run() is called by one thread at a time. Workers sleep after a short while without work. A range
// that no worker has begun is done by the caller, so that a pool on a machine that is busy with
// other things is no slower than one thread.
class WorkerPool {
 public:
  // The caller is one of `num_threads`; the pool starts the others. Given `cpus`, the calling
  // thread is pinned to the first of them and each other one to the next, as far as there are any;
  // one that the process may not use is passed over.
  explicit WorkerPool(int num_threads, std::vector<int> cpus = {});
  // No Run() may be under way.
  ~WorkerPool();

  int num_threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls body(begin, end) for ranges that cover [0, count), one a thread and as long as each other
  // where that can be. Returns when all are done; an exception of a body is thrown again. Within a
  // body it calls body(0, count).
  void Run(int64_t count, const kernels::RangeBody& body);

 private:
  void Work();
  void Pin(size_t thread) const;
  // Does ranges of the present section until there is none left.
  void DoRanges();

  // Generation of the section (32 bits), its number of ranges and the next range (16 bits each): a
  // range is taken by adding one, which fails where the section is another by now.
  std::atomic<uint64_t> state_{0};
  std::atomic<int64_t> num_done_{0};
  std::atomic<int> num_asleep_{0};
  std::atomic<bool> stopping_{false};
  int64_t count_ = 0;                         // of the section
  const kernels::RangeBody* body_ = nullptr;  // of the section
  std::mutex error_mu_;
  std::exception_ptr error_;  // guarded by error_mu_
  const std::vector<int> cpus_;
  std::vector<std::thread> workers_;
};

// While it lives, loops that the constructing thread starts run in the pool, and ATen's operations
// in that thread alone: its threads would wait awake for the pool's cores. Null: all in ATen's
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

// How many threads a loop of cpu_dispatch.h has here: the pool's, or else ATen's.
int NumThreads();

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_WORKER_POOL_H_
