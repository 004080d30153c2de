#include <algorithm>

#include "common/device/launch.cuh"
#include "common/weights/additive_digest_kernel.h"
#include "common/weights/run_kernels.h"
#include "common/weights/weight_kernels.h"

namespace tandem::weights {
namespace {

// Runs travel to the device as a launch's parameters, which have room for 4 KiB: no copy, no buffer
// to keep until it has been read.
constexpr int kBatch = 64;

template <typename Run>
struct Batch {
  Run runs[kBatch];
};

// Enough to fill the largest devices several times over.
constexpr int64_t kMaxBlocks = 2048;

// blockIdx.y is the run; the blocks of a row of the grid share it.
__global__ void __launch_bounds__(kRunThreads) CopyKernel(const Batch<CopyRun> batch) {
  const int64_t threads = static_cast<int64_t>(gridDim.x) * blockDim.x;
  CopyThread(batch.runs[blockIdx.y], static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x,
             threads);
}

__global__ void __launch_bounds__(kRunThreads)
    CastKernel(const WireElement element, const Batch<CastRun> batch) {
  const int64_t threads = static_cast<int64_t>(gridDim.x) * blockDim.x;
  CastThread(batch.runs[blockIdx.y], element,
             static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x, threads);
}

__global__ void __launch_bounds__(kDigestThreads)
    DigestKernel(const Batch<DigestRun> batch, uint64_t* lanes) {
  const DigestRun& run = batch.runs[blockIdx.y];
  if (blockIdx.x >= run.rows * DigestBlocksOfRow(run)) return;  // the whole block: nothing to do
  uint64_t sums[2] = {0, 0};
  DigestThread(run, blockIdx.x, gridDim.x, static_cast<int>(threadIdx.x), sums);
  // Sums mod 2^64 come out alike in any order.
  __shared__ unsigned long long totals[2];
  if (threadIdx.x < 2) totals[threadIdx.x] = 0;
  __syncthreads();
  for (int lane = 0; lane < 2; ++lane) {
    unsigned long long sum = sums[lane];
    for (int step = 16; step > 0; step /= 2) sum += __shfl_down_sync(0xFFFFFFFFu, sum, step);
    if (threadIdx.x % 32 == 0) atomicAdd(&totals[lane], sum);
  }
  __syncthreads();
  if (threadIdx.x < 2) {
    atomicAdd(reinterpret_cast<unsigned long long*>(lanes) + 2 * run.slot + threadIdx.x,
              totals[threadIdx.x]);
  }
}

// The blocks of threads that a run of so many units of work gets.
int64_t Blocks(int64_t units, int64_t units_of_block) {
  return (units + units_of_block - 1) / units_of_block;
}

// Calls launch(batch, grid) for every kBatch runs that have work; `blocks_of` is a run's share.
template <typename Run, typename BlocksOf, typename Launch>
cudaError_t ForBatches(const Run* runs, size_t count, BlocksOf blocks_of, Launch launch) {
  size_t next = 0;
  while (next < count) {
    Batch<Run> batch;
    int filled = 0;
    int64_t most = 0;
    for (; next < count && filled < kBatch; ++next) {
      const int64_t blocks = blocks_of(runs[next]);
      if (blocks == 0) continue;
      batch.runs[filled++] = runs[next];
      most = std::max(most, blocks);
    }
    if (filled == 0) break;
    launch(batch,
           dim3(static_cast<unsigned>(std::min(most, kMaxBlocks)), static_cast<unsigned>(filled)));
    if (const cudaError_t error = cudaGetLastError(); error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

}  // namespace

cudaError_t LaunchCopy(const CopyRun* runs, size_t count, cudaStream_t stream) {
  return ForBatches(
      runs, count,
      [](const CopyRun& run) {
        return Blocks(run.size / CopyWidth(run) * run.repeat, kRunThreads);
      },
      [stream](const Batch<CopyRun>& batch, dim3 grid) {
        TANDEM_LAUNCH(CopyKernel, grid, kRunThreads, 0, stream, batch);
      });
}

cudaError_t LaunchCast(WireElement element, const CastRun* runs, size_t count,
                       cudaStream_t stream) {
  return ForBatches(
      runs, count, [](const CastRun& run) { return Blocks(run.length * run.repeat, kRunThreads); },
      [element, stream](const Batch<CastRun>& batch, dim3 grid) {
        TANDEM_LAUNCH(CastKernel, grid, kRunThreads, 0, stream, element, batch);
      });
}

cudaError_t LaunchDigest(const DigestRun* runs, size_t count, uint64_t* lanes,
                         cudaStream_t stream) {
  return ForBatches(
      runs, count,
      [](const DigestRun& run) {
        return run.row_bytes > 0 ? run.rows * DigestBlocksOfRow(run) : 0;
      },
      [lanes, stream](const Batch<DigestRun>& batch, dim3 grid) {
        TANDEM_LAUNCH(DigestKernel, grid, kDigestThreads, 0, stream, batch, lanes);
      });
}

}  // namespace tandem::weights
