// Runs CUDA kernels on a CPU: a test includes this header and then the kernels' own source.
//
// The threads of a block take turns in one thread of the CPU, each until it waits for others, at a
// barrier or in an exchange among the lanes of a warp. Blocks, warps and lanes come in random order,
// and a warp may run far ahead of the others (TANDEM_EMULATION_SEED chooses; 1 by default), so a
// result that depends on the order shows. A launch that a GPU refuses is refused
// (cudaErrorInvalidConfiguration). A barrier that some threads never reach, or an exchange with a
// lane that has ended, ends the program with a message.
//
// Compiled with -fsanitize=thread, kernels are searched for data races within a block, in shared and
// global memory alike: barriers order accesses, exchanges do not. With -fsanitize=alignment and
// -fsanitize=signed-integer-overflow, misaligned vectors and 32-bit indices that overflow are found.
//
// Emulates what this project's kernels use. It shows that a kernel computes what it should; it says
// nothing about speed. Needs the CUDA toolkit's headers.
#ifndef TANDEM_TESTS_SUPPORT_CUDA_EMULATION_H_
#define TANDEM_TESTS_SUPPORT_CUDA_EMULATION_H_

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <utility>

namespace tandem::cuda_emulation {

constexpr int kLanes = 32;
// Limits that hold for every GPU since compute capability 3.5.
constexpr unsigned kMaxThreads = 1024;
constexpr unsigned kMaxGridX = 0x7FFFFFFF;
constexpr unsigned kMaxGridY = 0xFFFF;
// Kernels that ask for more than this have to opt in for as much as they need, at most what GPUs of
// compute capability 8.0 and 9.0 have.
constexpr size_t kMaxSharedBytes = size_t{48} << 10;
constexpr size_t kMaxOptInSharedBytes = size_t{163} << 10;

// The device of the calling thread: threads of a test may have a GPU each.
class Gpu {
 public:
  static Gpu& Current();
  ~Gpu();

  // Runs the blocks of a launch, or keeps the error for LastError().
  void Launch(dim3 grid, dim3 threads, size_t shared_bytes, const std::function<void()>& kernel);
  // How many there were, refused ones among them.
  int64_t launches() const;
  // Returns the error of the latest launch, once.
  cudaError_t LastError();
  // The next launch alone may ask for so much shared memory.
  cudaError_t AllowShared(size_t bytes);

  // Launches run only the blocks for which `only` is true; null: all. For grids that are too large to
  // run.
  void set_only(std::function<bool(dim3 block)> only);

  // For the thread whose turn it is.
  dim3 thread_index() const;
  dim3 block_index() const;
  dim3 block_size() const;
  dim3 grid_size() const;
  void* dynamic_shared() const;
  void SyncBlock();
  void SyncWarp();
  int CountBlock(bool mine);
  unsigned Ballot(unsigned lanes, bool mine);
  // The `bits` of lane `from` of the warp.
  uint64_t Exchange(unsigned lanes, uint64_t bits, int from);
  int lane() const;

 private:
  struct State;
  Gpu();
  const std::unique_ptr<State> state_;
};

// While it lives, launches of this thread run only the blocks for which `only` is true.
class OnlyBlocks {
 public:
  explicit OnlyBlocks(std::function<bool(dim3 block)> only) {
    Gpu::Current().set_only(std::move(only));
  }
  ~OnlyBlocks() { Gpu::Current().set_only(nullptr); }
};

template <typename T>
T ExchangeValue(unsigned lanes, T value, int from) {
  static_assert(sizeof(T) <= sizeof(uint64_t));
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  bits = Gpu::Current().Exchange(lanes, bits, from);
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}

// The value of the lane `step` further on; its own for the last lanes.
template <typename T>
T ExchangeDown(unsigned lanes, T value, int step) {
  const int lane = Gpu::Current().lane();
  return ExchangeValue(lanes, value, lane + step < kLanes ? lane + step : lane);
}

}  // namespace tandem::cuda_emulation

// A block's shared memory. One thread of the CPU runs one block at a time.
#undef __shared__
#define __shared__ static thread_local
#undef __launch_bounds__
#define __launch_bounds__(...)
#define threadIdx (::tandem::cuda_emulation::Gpu::Current().thread_index())
#define blockIdx (::tandem::cuda_emulation::Gpu::Current().block_index())
#define blockDim (::tandem::cuda_emulation::Gpu::Current().block_size())
#define gridDim (::tandem::cuda_emulation::Gpu::Current().grid_size())
#define __syncthreads() ::tandem::cuda_emulation::Gpu::Current().SyncBlock()
#define __syncwarp() ::tandem::cuda_emulation::Gpu::Current().SyncWarp()
#define __syncthreads_count(mine) ::tandem::cuda_emulation::Gpu::Current().CountBlock(mine)
#define __ballot_sync(lanes, mine) ::tandem::cuda_emulation::Gpu::Current().Ballot(lanes, mine)
#define __shfl_xor_sync(lanes, value, step) \
  ::tandem::cuda_emulation::ExchangeValue(  \
      lanes, value, ::tandem::cuda_emulation::Gpu::Current().lane() ^ (step))
#define __shfl_sync(lanes, value, from) ::tandem::cuda_emulation::ExchangeValue(lanes, value, from)
#define __shfl_down_sync(lanes, value, step) \
  ::tandem::cuda_emulation::ExchangeDown(lanes, value, step)
#define __popc(bits) __builtin_popcount(bits)
#define __ffs(bits) __builtin_ffs(static_cast<int>(bits))
#define cudaGetLastError() ::tandem::cuda_emulation::Gpu::Current().LastError()
// Takes cudaFuncAttributeMaxDynamicSharedMemorySize alone.
#define cudaFuncSetAttribute(kernel, attribute, bytes) \
  ::tandem::cuda_emulation::Gpu::Current().AllowShared(static_cast<size_t>(bytes))
#define TANDEM_LAUNCH_EARLY TANDEM_LAUNCH
#define TANDEM_LAUNCH(kernel, grid, threads, shared_bytes, stream, ...)                    \
  ::tandem::cuda_emulation::Gpu::Current().Launch(dim3(grid), dim3(threads), shared_bytes, \
                                                  [&] { kernel(__VA_ARGS__); })
#define TANDEM_DYNAMIC_SHARED(type, name) \
  type* const name = static_cast<type*>(::tandem::cuda_emulation::Gpu::Current().dynamic_shared())

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
// Relaxed, like CUDA's: it orders no other access.
template <typename T>
T atomicAdd(T* sum, T value) {
  T before;
  __atomic_load(sum, &before, __ATOMIC_RELAXED);
  T after = before + value;
  while (
      !__atomic_compare_exchange(sum, &before, &after, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    after = before + value;
  }
  return before;
}
using std::isfinite;

#endif  // TANDEM_TESTS_SUPPORT_CUDA_EMULATION_H_
