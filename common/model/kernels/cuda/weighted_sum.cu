#include "common/device/launch.cuh"
#include "common/model/kernels/cuda/device_math.cuh"
#include "common/model/kernels/cuda/weighted_sum.h"

namespace tandem::model::cuda {
namespace {

constexpr int kSumThreads = 256;

// One block per sum and kSumThreads packs of its elements.
template <typename T, bool kWhole>
__global__ void __launch_bounds__(kSumThreads) SumKernel(const WeightedSum args) {
  constexpr int kPack = kPackOf<T>;
  device::AwaitPredecessor();
  const auto i = static_cast<int64_t>(blockIdx.x);
  const int64_t at = (static_cast<int64_t>(blockIdx.y) * kSumThreads + threadIdx.x) * kPack;
  if (at >= args.size) return;
  float sums[kPack];
  for (float& sum : sums) sum = 0.0f;
  for (int64_t j = i * args.terms; j < (i + 1) * args.terms; ++j) {
    const int64_t row = args.places == nullptr ? j : args.places[j];
    const float weight = args.weights == nullptr ? 1.0f : args.weights[j];
    const auto term = LoadPack<T, kWhole>(static_cast<const T*>(args.rows) + row * args.size + at,
                                          args.size - at);
    for (int e = 0; e < kPack; ++e) sums[e] = fmaf(weight, ToFloat(term.at[e]), sums[e]);
  }
  Pack<T, kPack> out;
  for (int e = 0; e < kPack; ++e) FromFloat(sums[e], out.at[e]);
  StorePack<T, kWhole>(out, static_cast<T*>(args.out) + i * args.size + at, args.size - at);
}

// One block per term.
template <typename T, bool kWhole>
__global__ void __launch_bounds__(kSumThreads) SumBackwardKernel(const WeightedSumBackward args) {
  constexpr int kPack = kPackOf<T>;
  __shared__ float scratch[kWarp];
  const auto j = static_cast<int64_t>(blockIdx.x);
  const int64_t row = args.places == nullptr ? j : args.places[j];
  const T* const term = static_cast<const T*>(args.rows) + row * args.size;
  const T* const grad = static_cast<const T*>(args.grad_out) + j / args.terms * args.size;
  T* const grad_term = static_cast<T*>(args.grad_rows) + row * args.size;
  const float weight = args.weights[j];
  float product = 0.0f;
  for (int64_t at = static_cast<int64_t>(threadIdx.x) * kPack; at < args.size;
       at += kSumThreads * kPack) {
    const auto g = LoadPack<T, kWhole>(grad + at, args.size - at);
    const auto x = LoadPack<T, kWhole>(term + at, args.size - at);
    Pack<T, kPack> out;
    for (int e = 0; e < kPack; ++e) {
      product = fmaf(ToFloat(x.at[e]), ToFloat(g.at[e]), product);
      FromFloat(weight * ToFloat(g.at[e]), out.at[e]);
    }
    StorePack<T, kWhole>(out, grad_term + at, args.size - at);
  }
  product = BlockSum(product, scratch);
  if (threadIdx.x == 0) args.grad_weights[j] = product;
}

template <typename T>
bool AreWhole(int64_t size, const void* a, const void* b, const void* c) {
  return size % kPackOf<T> == 0 && IsAligned(a) && IsAligned(b) && IsAligned(c);
}

template <typename T>
cudaError_t LaunchOf(const WeightedSum& args, cudaStream_t stream) {
  constexpr int64_t kOfBlock = kSumThreads * kPackOf<T>;
  const dim3 grid(static_cast<unsigned>(args.sums),
                  static_cast<unsigned>((args.size + kOfBlock - 1) / kOfBlock));
  if (AreWhole<T>(args.size, args.rows, args.out, args.out)) {
    TANDEM_LAUNCH_EARLY((SumKernel<T, true>), grid, kSumThreads, 0, stream, args);
  } else {
    TANDEM_LAUNCH_EARLY((SumKernel<T, false>), grid, kSumThreads, 0, stream, args);
  }
  return cudaGetLastError();
}

template <typename T>
cudaError_t LaunchOf(const WeightedSumBackward& args, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(args.sums * args.terms);
  if (AreWhole<T>(args.size, args.rows, args.grad_out, args.grad_rows)) {
    TANDEM_LAUNCH((SumBackwardKernel<T, true>), blocks, kSumThreads, 0, stream, args);
  } else {
    TANDEM_LAUNCH((SumBackwardKernel<T, false>), blocks, kSumThreads, 0, stream, args);
  }
  return cudaGetLastError();
}

}  // namespace

cudaError_t Launch(const WeightedSum& args, cudaStream_t stream) {
  if (args.sums == 0 || args.size == 0) return cudaSuccess;
  if (args.places == nullptr && args.terms != 1) return cudaErrorInvalidValue;
  return args.type == Element::kFloat32 ? LaunchOf<float>(args, stream)
                                        : LaunchOf<__nv_bfloat16>(args, stream);
}

cudaError_t Launch(const WeightedSumBackward& args, cudaStream_t stream) {
  if (args.sums == 0 || args.size == 0) return cudaSuccess;
  if (args.places == nullptr && args.terms != 1) return cudaErrorInvalidValue;
  return args.type == Element::kFloat32 ? LaunchOf<float>(args, stream)
                                        : LaunchOf<__nv_bfloat16>(args, stream);
}

}  // namespace tandem::model::cuda
