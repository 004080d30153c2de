// Runs CUDA kernels on a CPU: a test includes this and then the kernels' own source. A launch takes
// its blocks one after another; the threads of a block take turns in one thread of the CPU, each
// until it has to wait for others, at a barrier or in an exchange among the lanes of a warp. What
// it shows is that a kernel computes what it should, whatever order threads come in; not what a GPU
// makes of it. For what the kernels of this project use. Needs the CUDA toolkit's headers.
#ifndef TANDEM_TESTS_SUPPORT_CUDA_EMULATION_H_
#define TANDEM_TESTS_SUPPORT_CUDA_EMULATION_H_

#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <setjmp.h>
#include <ucontext.h>

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <vector>

namespace tandem::cuda_emulation {

constexpr int kLanes = 32;
constexpr size_t kStackBytes = size_t{128} << 10;

// Threads that wait for one another: a block, or a warp. One that has ended is not waited for.
struct Barrier {
  int alive = 0;
  int arrived = 0;
  uint64_t generation = 0;
};

class Block {
 public:
  // Of the calling thread: threads of a test may have a GPU each.
  static Block& Current() {
    static thread_local Block block;
    return block;
  }

  void Run(dim3 grid, int threads, size_t shared_bytes, const std::function<void()>& body) {
    grid_ = grid;
    threads_ = threads;
    body_ = &body;
    while (static_cast<int>(fibers_.size()) < threads) {
      fibers_.push_back(std::make_unique<Fiber>());
    }
    for (unsigned y = 0; y < grid.y; ++y) {
      for (unsigned x = 0; x < grid.x; ++x) RunOne(dim3(x, y), shared_bytes);
    }
  }

  void SyncBlock() { Wait(block_); }
  void SyncWarp() { Wait(warps_[thread_ / kLanes]); }
  int thread() const { return thread_; }
  int threads() const { return threads_; }
  dim3 index() const { return index_; }
  dim3 grid() const { return grid_; }
  double* dynamic() { return dynamic_.data(); }
  uint64_t* slots() { return slots_[thread_ / kLanes]; }

  // The value of lane `from` of the warp.
  template <typename T>
  T Exchange(T value, int from) {
    static_assert(sizeof(T) <= sizeof(uint64_t));
    uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof(T));
    slots()[thread_ % kLanes] = bits;
    SyncWarp();
    bits = slots()[from % kLanes];
    SyncWarp();
    std::memcpy(&value, &bits, sizeof(T));
    return value;
  }

  int count = 0;  // of __syncthreads_count()

 private:
  struct Fiber {
    std::unique_ptr<char[]> stack{new char[kStackBytes]};
    ucontext_t start;
    jmp_buf place;
    bool begun = false;
    bool ended = false;
  };

  void RunOne(dim3 index, size_t shared_bytes) {
    index_ = index;
    // What a kernel reads of it, it has written.
    dynamic_.assign(shared_bytes / sizeof(double) + 1, std::numeric_limits<double>::quiet_NaN());
    block_ = {threads_, 0, 0};
    warps_.assign((threads_ + kLanes - 1) / kLanes, {});
    for (int t = 0; t < threads_; ++t) {
      ++warps_[t / kLanes].alive;
      fibers_[t]->begun = fibers_[t]->ended = false;
    }
    for (int left = threads_; left > 0;) {
      const int before = left;
      const uint64_t waits = waits_;
      for (int t = 0; t < threads_; ++t) {
        Fiber& fiber = *fibers_[t];
        if (fiber.ended) continue;
        Resume(t);
        if (fiber.ended) --left;
      }
      // Every thread was asked and none came further.
      if (left == before && waits_ == waits) std::abort();
    }
  }

  void Resume(int t) {
    thread_ = t;
    Fiber& fiber = *fibers_[t];
    if (_setjmp(scheduler_) != 0) return;
    if (fiber.begun) _longjmp(fiber.place, 1);
    fiber.begun = true;
    getcontext(&fiber.start);
    fiber.start.uc_stack.ss_sp = fiber.stack.get();
    fiber.start.uc_stack.ss_size = kStackBytes;
    fiber.start.uc_link = nullptr;
    makecontext(&fiber.start, &Block::Start, 0);
    setcontext(&fiber.start);
  }

  static void Start() {
    Block& block = Current();
    (*block.body_)();
    block.fibers_[block.thread_]->ended = true;
    block.Leave(block.warps_[block.thread_ / kLanes]);
    block.Leave(block.block_);
    _longjmp(block.scheduler_, 1);
  }

  void Leave(Barrier& barrier) {
    --barrier.alive;
    ++waits_;
    if (barrier.alive > 0 && barrier.arrived == barrier.alive) Release(barrier);
  }
  void Release(Barrier& barrier) {
    barrier.arrived = 0;
    ++barrier.generation;
  }

  void Wait(Barrier& barrier) {
    ++waits_;
    const uint64_t generation = barrier.generation;
    if (++barrier.arrived == barrier.alive) {
      Release(barrier);
      return;
    }
    const int me = thread_;
    while (barrier.generation == generation) {
      if (_setjmp(fibers_[me]->place) == 0) _longjmp(scheduler_, 1);
    }
  }

  dim3 grid_, index_;
  int threads_ = 0;
  int thread_ = 0;  // whose turn it is
  uint64_t waits_ = 0;
  const std::function<void()>* body_ = nullptr;
  jmp_buf scheduler_;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  Barrier block_;
  std::vector<Barrier> warps_;
  std::vector<double> dynamic_;
  uint64_t slots_[32][kLanes];
};

inline dim3 ThreadIndex() { return dim3(Block::Current().thread(), 0, 0); }
inline dim3 BlockIndex() {
  const dim3 index = Block::Current().index();
  return dim3(index.x, index.y, 0);
}

inline unsigned Ballot(bool mine) {
  Block& block = Block::Current();
  block.slots()[block.thread() % kLanes] = mine ? 1 : 0;
  block.SyncWarp();
  unsigned lanes = 0;
  for (int i = 0; i < kLanes; ++i) lanes |= static_cast<unsigned>(block.slots()[i]) << i;
  block.SyncWarp();
  return lanes;
}

inline int CountAll(bool mine) {
  Block& block = Block::Current();
  block.count += mine ? 1 : 0;
  block.SyncBlock();
  const int count = block.count;
  block.SyncBlock();
  block.count = 0;
  block.SyncBlock();
  return count;
}

}  // namespace tandem::cuda_emulation

// A block's shared memory: blocks of a GPU take turns.
#undef __shared__
#define __shared__ static thread_local
#undef __launch_bounds__
#define __launch_bounds__(...)
#define threadIdx (::tandem::cuda_emulation::ThreadIndex())
#define blockIdx (::tandem::cuda_emulation::BlockIndex())
#define blockDim (dim3(::tandem::cuda_emulation::Block::Current().threads()))
#define gridDim (::tandem::cuda_emulation::Block::Current().grid())
#define __syncthreads() ::tandem::cuda_emulation::Block::Current().SyncBlock()
#define __syncwarp() ::tandem::cuda_emulation::Block::Current().SyncWarp()
#define __syncthreads_count(mine) ::tandem::cuda_emulation::CountAll(mine)
#define __ballot_sync(lanes, mine) ::tandem::cuda_emulation::Ballot(mine)
#define __shfl_xor_sync(lanes, value, step)            \
  ::tandem::cuda_emulation::Block::Current().Exchange( \
      value, ::tandem::cuda_emulation::Block::Current().thread() ^ (step))
#define __shfl_sync(lanes, value, from) \
  ::tandem::cuda_emulation::Block::Current().Exchange(value, from)
#define __popc(bits) __builtin_popcount(bits)
#define __ffs(bits) __builtin_ffs(static_cast<int>(bits))
#define cudaGetLastError() cudaSuccess
#define TANDEM_LAUNCH_EARLY TANDEM_LAUNCH
#define TANDEM_LAUNCH(kernel, grid, threads, shared_bytes, stream, ...)             \
  ::tandem::cuda_emulation::Block::Current().Run(dim3(grid), threads, shared_bytes, \
                                                 [&] { kernel(__VA_ARGS__); })
#define TANDEM_DYNAMIC_SHARED(type, name) \
  type* const name = reinterpret_cast<type*>(::tandem::cuda_emulation::Block::Current().dynamic())

inline unsigned __float_as_uint(float value) {
  unsigned bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}
inline float __uint_as_float(unsigned bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}
template <typename T>
T atomicAdd(T* sum, T value) {
  const T before = *sum;
  *sum += value;
  return before;
}
using std::isfinite;

#endif  // TANDEM_TESTS_SUPPORT_CUDA_EMULATION_H_
