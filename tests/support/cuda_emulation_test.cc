// Faults that a CPU hides, planted in small kernels: the emulation finds each.
#include "tests/support/cuda_emulation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <set>
#include <vector>
// After it.
#include "common/device/launch.cuh"

namespace tandem::cuda_emulation {
namespace {

constexpr int kThreads = 128;
constexpr unsigned kAll = 0xFFFFFFFFu;

// What ThreadSanitizer exits with.
constexpr int kRace = 66;

// Sums of a block by a tree in shared memory. Without `barrier` a level reads what the level before
// may not have written yet.
__global__ void SumKernel(const int* in, int* out, bool barrier) {
  __shared__ int parts[kThreads];
  parts[threadIdx.x] = in[threadIdx.x];
  __syncthreads();
  for (unsigned step = kThreads / 2; step > 0; step /= 2) {
    if (threadIdx.x < step) parts[threadIdx.x] += parts[threadIdx.x + step];
    if (barrier) __syncthreads();
  }
  if (threadIdx.x == 0) *out = parts[0];
}

int SumOf(bool barrier) {
  std::vector<int> in(kThreads, 1);
  int out = 0;
  TANDEM_LAUNCH(SumKernel, 1, kThreads, 0, nullptr, in.data(), &out, barrier);
  return out;
}

// Lanes pass a value through shared memory: an exchange between them does not order it.
__global__ void PassKernel(int* out, bool sync) {
  __shared__ int passed[kLanes];
  passed[threadIdx.x] = static_cast<int>(threadIdx.x);
  if (sync) {
    __syncwarp();
  } else {
    (void)__shfl_sync(kAll, 0, 0);
  }
  out[threadIdx.x] = passed[(threadIdx.x + 1) % kLanes];
}

int PassedTo(int lane, bool sync) {
  std::vector<int> out(kLanes);
  TANDEM_LAUNCH(PassKernel, 1, kLanes, 0, nullptr, out.data(), sync);
  return out[lane];
}

// Every warp appends its number: who comes first is open.
__global__ void AppendKernel(int* places, int* next) {
  if (threadIdx.x % kLanes == 0) {
    places[atomicAdd(next, 1)] = static_cast<int>(blockIdx.x * 4 + threadIdx.x / kLanes);
  }
}

std::vector<int> Appended() {
  std::vector<int> places(16, -1);
  int next = 0;
  TANDEM_LAUNCH(AppendKernel, 4, kThreads, 0, nullptr, places.data(), &next);
  return places;
}

struct alignas(16) Four {
  float at[4];
};

__global__ void LoadKernel(const float* in, float* out) {
  const Four four = *reinterpret_cast<const Four*>(in);
  out[threadIdx.x] = four.at[0];
}

__global__ void RowKernel(int row, int size, int64_t* out) { *out = row * size; }

__global__ void LeavingKernel(int leaving, int kind) {
  if (static_cast<int>(threadIdx.x) < leaving) return;
  if (kind == 0) {
    (void)__shfl_xor_sync(kAll, 1, 1);
  } else if (threadIdx.x % 2 == 0) {
    __syncthreads();
  } else {
    __syncwarp();
  }
}

__global__ void CountKernel(std::atomic<int>* count) { ++*count; }

TEST(CudaEmulation, AKernelWithItsBarriersIsRight) {
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(SumOf(true), kThreads);
    EXPECT_EQ(PassedTo(3, true), 4);
  }
}

TEST(CudaEmulationDeathTest, AMissingBarrierIsARace) {
  EXPECT_EXIT(std::exit(SumOf(false) < 0), ::testing::ExitedWithCode(kRace), "data race");
}

TEST(CudaEmulationDeathTest, AnExchangeDoesNotOrderMemory) {
  EXPECT_EXIT(std::exit(PassedTo(3, false) < 0), ::testing::ExitedWithCode(kRace), "data race");
}

TEST(CudaEmulation, WarpsAndBlocksComeInAnyOrder) {
  std::set<std::vector<int>> orders;
  for (int i = 0; i < 20; ++i) orders.insert(Appended());
  EXPECT_GT(orders.size(), 10u);
  for (std::vector<int> order : orders) {
    std::sort(order.begin(), order.end());
    for (int i = 0; i < 16; ++i) EXPECT_EQ(order[i], i);
  }
}

TEST(CudaEmulationDeathTest, AMisalignedVectorIsFound) {
  alignas(16) float in[8] = {};
  float out[1];
  TANDEM_LAUNCH(LoadKernel, 1, 1, 0, nullptr, in + 4, out);
  EXPECT_DEATH(TANDEM_LAUNCH(LoadKernel, 1, 1, 0, nullptr, in + 1, out), "misaligned address");
}

TEST(CudaEmulationDeathTest, AnIndexOf32BitsThatOverflowsIsFound) {
  int64_t at = 0;
  TANDEM_LAUNCH(RowKernel, 1, 1, 0, nullptr, 1 << 15, 1 << 15, &at);
  EXPECT_EQ(at, int64_t{1} << 30);
  EXPECT_DEATH(TANDEM_LAUNCH(RowKernel, 1, 1, 0, nullptr, 1 << 16, 1 << 16, &at),
               "signed integer overflow");
}

TEST(CudaEmulationDeathTest, AnExchangeWithALaneThatHasEndedIsFound) {
  TANDEM_LAUNCH(LeavingKernel, 1, 2 * kLanes, 0, nullptr, kLanes, 0);  // a whole warp may end
  EXPECT_DEATH(TANDEM_LAUNCH(LeavingKernel, 1, kLanes, 0, nullptr, 1, 0), "lanes that have ended");
  EXPECT_DEATH(TANDEM_LAUNCH(LeavingKernel, 1, kLanes / 2, 0, nullptr, 0, 0), "do not exist");
}

TEST(CudaEmulationDeathTest, ABarrierThatSomeNeverReachIsFound) {
  EXPECT_DEATH(TANDEM_LAUNCH(LeavingKernel, 1, kLanes, 0, nullptr, 0, 1), "every thread waits");
}

TEST(CudaEmulation, ALaunchThatAGpuRefusesIsRefusedAndRunsNothing) {
  std::atomic<int> count = 0;
  const auto launch = [&](dim3 grid, dim3 threads, size_t shared_bytes) {
    TANDEM_LAUNCH(CountKernel, grid, threads, shared_bytes, nullptr, &count);
    return cudaGetLastError();
  };
  EXPECT_EQ(launch(0, 32, 0), cudaErrorInvalidConfiguration);
  EXPECT_EQ(launch(dim3(1, 0x10000), 32, 0), cudaErrorInvalidConfiguration);
  EXPECT_EQ(launch(1, 1025, 0), cudaErrorInvalidConfiguration);
  EXPECT_EQ(launch(1, 32, (48 << 10) + 1), cudaErrorInvalidConfiguration);
  EXPECT_EQ(count, 0);
  EXPECT_EQ(launch(2, 1024, 48 << 10), cudaSuccess);
  EXPECT_EQ(count, 2048);
}

TEST(CudaEmulation, TheNextLaunchMayOptInForMoreSharedMemory) {
  std::atomic<int> count = 0;
  const auto launch = [&](size_t shared_bytes) {
    TANDEM_LAUNCH(CountKernel, 1, 32, shared_bytes, nullptr, &count);
    return cudaGetLastError();
  };
  const auto opt_in = [](size_t bytes) {
    return cudaFuncSetAttribute(CountKernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  };
  EXPECT_EQ(opt_in(100 << 10), cudaSuccess);
  EXPECT_EQ(launch(100 << 10), cudaSuccess);
  EXPECT_EQ(launch(100 << 10), cudaErrorInvalidConfiguration);
  EXPECT_EQ(opt_in(100 << 10), cudaSuccess);
  EXPECT_EQ(launch((100 << 10) + 1), cudaErrorInvalidConfiguration);
  EXPECT_EQ(opt_in((163 << 10) + 1), cudaErrorInvalidValue);
  EXPECT_EQ(count, 32);
}

TEST(CudaEmulation, OnlyTheBlocksAskedForRun) {
  std::atomic<int> count = 0;
  const OnlyBlocks last([](dim3 block) { return block.x == 0x7FFFFF; });
  TANDEM_LAUNCH(CountKernel, 0x800000, 32, 0, nullptr, &count);
  EXPECT_EQ(count, 32);
}

}  // namespace
}  // namespace tandem::cuda_emulation
