#include "common/device/launch.cuh"
#include "common/model/kernels/cuda/device_math.cuh"
#include "common/model/kernels/cuda/few_rows_product.h"

namespace tandem::model::cuda {
namespace {

using BFloat16 = __nv_bfloat16;
constexpr int kPack = kPackOf<BFloat16>;
constexpr int kWarpsOfBlock = 4;
// Packs of a weight's row that a lane asks for before it uses the first: to keep a GPU's memory
// busy, about 20 KiB must be on their way to each multiprocessor (Little's law: 3.3 TB/s over 0.8
// microseconds and 132 of them), more than a few warps with one request each.
constexpr int kInFlight = 4;
// So many warps fill the largest GPUs of today.
constexpr int64_t kManyWarps = 132 * 12;

// Past the caches' first level: no weight is read twice.
__device__ inline Pack<BFloat16, kPack> LoadOnce(const BFloat16* from) {
  using Bits = Pack<BFloat16, kPack>;
#ifdef __CUDA_ARCH__
  const int4 bits = __ldcs(reinterpret_cast<const int4*>(from));
  return *reinterpret_cast<const Bits*>(&bits);
#else
  return *reinterpret_cast<const Bits*>(from);
#endif
}

template <int kRows, int kColumns>
__device__ inline void AddProducts(const Pack<BFloat16, kPack> (&weights)[kColumns],
                                   const BFloat16* x, int64_t in, float (&sums)[kColumns][kRows]) {
  for (int row = 0; row < kRows; ++row) {
    const auto inputs = LoadPack<BFloat16, true>(x + row * in, kPack);
    for (int column = 0; column < kColumns; ++column) {
      for (int i = 0; i < kPack; ++i) {
        sums[column][row] =
            fmaf(ToFloat(weights[column].at[i]), ToFloat(inputs.at[i]), sums[column][row]);
      }
    }
  }
}

// kWarps warps of a block share kColumns rows of the weight, each every kWarps-th part of 512 bytes;
// the order of a sum follows from that and from `in` alone.
template <typename Out, int kRows, int kColumns, int kWarps>
__global__ void __launch_bounds__(kWarpsOfBlock* kWarp) FewRowsKernel(const FewRowsProduct args) {
  constexpr int kGroups = kWarpsOfBlock / kWarps;  // of warps with the same columns
  __shared__ float parts[kWarpsOfBlock][kColumns * kRows];
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int64_t first = (static_cast<int64_t>(blockIdx.x) * kGroups + warp / kWarps) * kColumns;
  const auto* const x = static_cast<const BFloat16*>(args.x);
  const BFloat16* rows[kColumns];  // of the weight; the last one again beyond the end
  for (int column = 0; column < kColumns; ++column) {
    const int64_t row = first + column < args.out_size ? first + column : args.out_size - 1;
    rows[column] = static_cast<const BFloat16*>(args.weight) + row * args.in;
  }
  float sums[kColumns][kRows] = {};
  constexpr int64_t kStep = int64_t{kWarps} * kWarp * kPack;
  int64_t at = (static_cast<int64_t>(warp % kWarps) * kWarp + lane) * kPack;
  bool waits = true;  // for x; the first weights are on their way by then
  for (; at < args.in; at += kInFlight * kStep) {
    Pack<BFloat16, kPack> weights[kInFlight][kColumns];
#pragma unroll
    for (int i = 0; i < kInFlight; ++i) {
      if (at + i * kStep >= args.in) continue;
      for (int column = 0; column < kColumns; ++column) {
        weights[i][column] = LoadOnce(rows[column] + at + i * kStep);
      }
    }
    if (waits) device::AwaitPredecessor();
    waits = false;
#pragma unroll
    for (int i = 0; i < kInFlight; ++i) {
      if (at + i * kStep >= args.in) continue;
      AddProducts<kRows, kColumns>(weights[i], x + at + i * kStep, args.in, sums);
    }
  }
  if (waits) device::AwaitPredecessor();
  for (int column = 0; column < kColumns; ++column) {
    for (int row = 0; row < kRows; ++row) {
      const float sum = WarpSum(sums[column][row]);
      if (lane == 0) parts[warp][column * kRows + row] = sum;
    }
  }
  __syncthreads();
  // One lane of the group's first warp for each element.
  if (warp % kWarps != 0 || lane >= kColumns * kRows) return;
  const int64_t column = first + lane / kRows;
  if (column >= args.out_size) return;
  float sum = parts[warp][lane];
  for (int i = 1; i < kWarps; ++i) sum += parts[warp + i][lane];
  if (args.bias != nullptr) sum += ToFloat(static_cast<const BFloat16*>(args.bias)[column]);
  FromFloat(sum, static_cast<Out*>(args.out)[(lane % kRows) * args.out_size + column]);
}

template <typename Out, int kRows, int kColumns, int kWarps>
cudaError_t LaunchShape(const FewRowsProduct& args, cudaStream_t stream) {
  constexpr int64_t kOfBlock = int64_t{kWarpsOfBlock} / kWarps * kColumns;
  const auto blocks = static_cast<unsigned>((args.out_size + kOfBlock - 1) / kOfBlock);
  TANDEM_LAUNCH_EARLY((FewRowsKernel<Out, kRows, kColumns, kWarps>), blocks, kWarpsOfBlock * kWarp,
                      0, stream, args);
  return cudaGetLastError();
}

// The shape depends on the weight's alone, so that a row's bits do not depend on the number of rows.
// Two columns share the reads of x; few columns are cut among warps instead.
template <typename Out, int kRows>
cudaError_t LaunchRows(const FewRowsProduct& args, cudaStream_t stream) {
  if (args.out_size >= 2 * kManyWarps) return LaunchShape<Out, kRows, 2, 1>(args, stream);
  if (args.out_size >= kManyWarps) return LaunchShape<Out, kRows, 1, 2>(args, stream);
  return LaunchShape<Out, kRows, 1, 4>(args, stream);
}

template <typename Out>
cudaError_t LaunchTyped(const FewRowsProduct& args, cudaStream_t stream) {
  static_assert(kMostFewRows == 2);
  return args.rows == 1 ? LaunchRows<Out, 1>(args, stream) : LaunchRows<Out, 2>(args, stream);
}

}  // namespace

bool Takes(const FewRowsProduct& args) {
  return args.rows >= 1 && args.rows <= kMostFewRows && args.out_size > 0 && args.in > 0 &&
         args.in % kPack == 0 && IsAligned(args.x) && IsAligned(args.weight);
}

cudaError_t Launch(const FewRowsProduct& args, cudaStream_t stream) {
  if (!Takes(args)) return cudaErrorInvalidValue;
  return args.out_type == Element::kFloat32 ? LaunchTyped<float>(args, stream)
                                            : LaunchTyped<BFloat16>(args, stream);
}

}  // namespace tandem::model::cuda
