#include <algorithm>

#include "common/model/kernels/cuda/device_math.cuh"
#include "common/model/kernels/cuda/exp_sum.cuh"
#include "common/model/kernels/cuda/launch.cuh"
#include "common/model/kernels/cuda/row_kernels.h"

namespace tandem::model::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarpsOfBlock = 4;  // for kernels with one warp per work item

unsigned Blocks(int64_t items, int64_t of_block) {
  return static_cast<unsigned>((items + of_block - 1) / of_block);
}

// One block per row. Stores the sum first and normalises the stored value, like the CPU.
template <typename T, bool kWhole>
__global__ void __launch_bounds__(kThreads) RmsNormKernel(const RmsNorm args) {
  constexpr int kPack = kPackOf<T>;
  __shared__ float scratch[kWarp];
  const int64_t start = static_cast<int64_t>(blockIdx.x) * args.size;
  const T* x = static_cast<const T*>(args.x) + start;
  const T* const delta =
      args.delta == nullptr ? nullptr : static_cast<const T*>(args.delta) + start;
  float squares = 0.0f;
  for (int64_t j = static_cast<int64_t>(threadIdx.x) * kPack; j < args.size;
       j += kThreads * kPack) {
    const int64_t count = args.size - j;
    Pack<T, kPack> piece = LoadPack<T, kWhole>(x + j, count);
    if (delta != nullptr) {
      const Pack<T, kPack> added = LoadPack<T, kWhole>(delta + j, count);
      for (int i = 0; i < kPack; ++i)
        FromFloat(ToFloat(piece.at[i]) + ToFloat(added.at[i]), piece.at[i]);
      StorePack<T, kWhole>(piece, static_cast<T*>(args.sum) + start + j, count);
    }
    for (int i = 0; i < kPack; ++i) squares += ToFloat(piece.at[i]) * ToFloat(piece.at[i]);
  }
  const float mean = BlockSum(squares, scratch) / static_cast<float>(args.size);
  const float inverse_rms = 1.0f / sqrtf(mean + args.eps);
  // Each thread reads back only its own writes.
  if (delta != nullptr) x = static_cast<const T*>(args.sum) + start;
  const T* const weight = static_cast<const T*>(args.weight);
  T* const out = static_cast<T*>(args.out) + start;
  for (int64_t j = static_cast<int64_t>(threadIdx.x) * kPack; j < args.size;
       j += kThreads * kPack) {
    const int64_t count = args.size - j;
    const Pack<T, kPack> piece = LoadPack<T, kWhole>(x + j, count);
    const Pack<T, kPack> scale = LoadPack<T, kWhole>(weight + j, count);
    Pack<T, kPack> normed;
    for (int i = 0; i < kPack; ++i) {
      FromFloat(ToFloat(piece.at[i]) * inverse_rms * ToFloat(scale.at[i]), normed.at[i]);
    }
    StorePack<T, kWhole>(normed, out + j, count);
  }
}

// One row of blocks per row of the batch.
template <typename T, int N>
__global__ void __launch_bounds__(kThreads) SwiGluKernel(const SwiGlu args) {
  using Piece = Pack<T, N>;
  const int64_t j = (static_cast<int64_t>(blockIdx.y) * kThreads + threadIdx.x) * N;
  if (j >= args.size) return;
  const T* const gate = static_cast<const T*>(args.gate_up) + blockIdx.x * 2 * args.size + j;
  const Piece g = *reinterpret_cast<const Piece*>(gate);
  const Piece up = *reinterpret_cast<const Piece*>(gate + args.size);
  Piece out;
  for (int i = 0; i < N; ++i) {
    const float x = ToFloat(g.at[i]);
    // Avoids overflow: the exponent is never positive.
    const float e = expf(-fabsf(x));
    const float sigmoid = (x < 0.0f ? e : 1.0f) / (1.0f + e);
    FromFloat(x * sigmoid * ToFloat(up.at[i]), out.at[i]);
  }
  *reinterpret_cast<Piece*>(static_cast<T*>(args.out) + blockIdx.x * args.size + j) = out;
}

__global__ void __launch_bounds__(kThreads) RotaryTableKernel(const RotaryTable args) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= args.rows * args.size) return;
  const float angle =
      static_cast<float>(args.positions[i / args.size]) * args.frequencies[i % args.size];
  args.cos[i] = cosf(angle);
  args.sin[i] = sinf(angle);
}

// One warp per head per row.
template <typename T>
__global__ void __launch_bounds__(kWarpsOfBlock* kWarp) RotateKernel(const Rotate args) {
  const int heads = args.num_heads + args.num_kv_heads;
  const int64_t index = static_cast<int64_t>(blockIdx.x) * kWarpsOfBlock + threadIdx.x / kWarp;
  if (index >= args.rows * heads) return;  // the whole warp
  const int64_t row = index / heads;
  const int head = static_cast<int>(index % heads);
  const int lane = threadIdx.x % kWarp;
  const int half = args.head_dim / 2;
  const bool is_query = head < args.num_heads;
  const T* const in = static_cast<const T*>(args.qkv) + row * args.qkv_stride +
                      static_cast<int64_t>(head) * args.head_dim;
  T* const out = is_query ? static_cast<T*>(args.q) + (row * args.num_heads + head) * args.head_dim
                          : static_cast<T*>(args.k) +
                                (row * args.num_kv_heads + head - args.num_heads) * args.head_dim;
  const T* const norm = static_cast<const T*>(is_query ? args.q_norm : args.k_norm);
  float inverse_rms = 1.0f;
  if (norm != nullptr) {
    float squares = 0.0f;
    for (int i = lane; i < args.head_dim; i += kWarp) squares += ToFloat(in[i]) * ToFloat(in[i]);
    const float mean = WarpSum(squares) / static_cast<float>(args.head_dim);
    inverse_rms = 1.0f / sqrtf(mean + args.eps);
  }
  for (int i = lane; i < half; i += kWarp) {
    float first = ToFloat(in[i]);
    float second = ToFloat(in[half + i]);
    if (norm != nullptr) {
      first = first * inverse_rms * ToFloat(norm[i]);
      second = second * inverse_rms * ToFloat(norm[half + i]);
    }
    const float cos = args.cos[row * half + i];
    const float sin = args.sin[row * half + i];
    FromFloat(first * cos - second * sin, out[i]);
    FromFloat(second * cos + first * sin, out[half + i]);
  }
}

// A block for each row.
template <typename T, int N>
__global__ void __launch_bounds__(kThreads) WriteKvKernel(const WriteKv args) {
  using Piece = Pack<T, N>;
  const int64_t row = blockIdx.x;
  const int64_t slot = args.slots[row];
  const int64_t block = slot / args.block_size;
  const int64_t place = slot % args.block_size;
  const int width = args.num_kv_heads * args.head_dim;
  for (int j = static_cast<int>(threadIdx.x) * N; j < width; j += kThreads * N) {
    const int head = j / args.head_dim;
    const int i = j % args.head_dim;
    const int64_t to =
        ((block * args.num_kv_heads + head) * args.block_size + place) * args.head_dim + i;
    const T* const k =
        static_cast<const T*>(args.k) + row * args.k_row_stride + head * args.k_head_stride + i;
    const T* const v =
        static_cast<const T*>(args.v) + row * args.v_row_stride + head * args.v_head_stride + i;
    *reinterpret_cast<Piece*>(static_cast<T*>(args.keys) + to) = *reinterpret_cast<const Piece*>(k);
    *reinterpret_cast<Piece*>(static_cast<T*>(args.values) + to) =
        *reinterpret_cast<const Piece*>(v);
  }
}

// A block for each row.
__global__ void __launch_bounds__(kExpSumThreads) RowLogProbsKernel(const RowLogProbs args) {
  __shared__ float floats[kWarp];
  __shared__ double doubles[kWarp];
  const int64_t row = blockIdx.x;
  const float* const x = args.logits + row * args.vocab;
  const float scale = 1.0f / fmaxf(args.temperatures[row], 1e-30f);
  float most = -INFINITY;
  for (int64_t j = threadIdx.x; j < args.vocab; j += kExpSumThreads) most = MaxOf(most, x[j]);
  most = BlockMax(most, floats);
  double weighted = 0.0;  // z exp(z), with z = (x - most) * scale
  const double sum = SumOfWeights(
      args.vocab,
      [&](int64_t j) {
        const float weight = ExpWeight(x[j], most, scale);
        // Below this exp() is 0 in float32; an infinite z would make 0 times infinity.
        weighted += fmaxf((x[j] - most) * scale, -200.0f) * weight;
        return weight;
      },
      nullptr, doubles);
  weighted = BlockSum(weighted, doubles);
  if (threadIdx.x > 0) return;
  const int64_t target = args.targets[row];
  if (target >= 0) args.log_probs[row] = LogProb(x[target], most, scale, sum);
  const double log_sum = log(sum);
  args.entropy[row] = static_cast<float>(log_sum - weighted / sum);
  args.log_sum_exp[row] = static_cast<float>(static_cast<double>(most) * scale + log_sum);
}

template <typename T>
cudaError_t LaunchOf(const RmsNorm& args, cudaStream_t stream) {
  constexpr int kPack = kPackOf<T>;
  // Both instances add in the same order (LoadPack), so alignment does not show in the result.
  const bool packs = args.size % kPack == 0 && IsAligned(args.x) && IsAligned(args.delta) &&
                     IsAligned(args.weight) && IsAligned(args.sum) && IsAligned(args.out);
  const auto blocks = static_cast<unsigned>(args.rows);
  if (packs) {
    TANDEM_LAUNCH((RmsNormKernel<T, true>), blocks, kThreads, 0, stream, args);
  } else {
    TANDEM_LAUNCH((RmsNormKernel<T, false>), blocks, kThreads, 0, stream, args);
  }
  return cudaGetLastError();
}

template <typename T>
cudaError_t LaunchOf(const SwiGlu& args, cudaStream_t stream) {
  constexpr int kPack = kPackOf<T>;
  const auto rows = static_cast<unsigned>(args.rows);
  if (args.size % kPack == 0 && IsAligned(args.gate_up) && IsAligned(args.out)) {
    const dim3 grid(rows, Blocks(args.size / kPack, kThreads));
    TANDEM_LAUNCH((SwiGluKernel<T, kPack>), grid, kThreads, 0, stream, args);
  } else {
    const dim3 grid(rows, Blocks(args.size, kThreads));
    TANDEM_LAUNCH((SwiGluKernel<T, 1>), grid, kThreads, 0, stream, args);
  }
  return cudaGetLastError();
}

template <typename T>
cudaError_t LaunchOf(const Rotate& args, cudaStream_t stream) {
  const int64_t warps = args.rows * (args.num_heads + args.num_kv_heads);
  TANDEM_LAUNCH((RotateKernel<T>), Blocks(warps, kWarpsOfBlock), kWarpsOfBlock * kWarp, 0, stream,
                args);
  return cudaGetLastError();
}

template <typename T>
cudaError_t LaunchOf(const WriteKv& args, cudaStream_t stream) {
  constexpr int kPack = kPackOf<T>;
  const auto fits = [](int64_t elements) { return elements % kPack == 0; };
  const bool packs = fits(args.head_dim) && fits(args.k_row_stride) && fits(args.k_head_stride) &&
                     fits(args.v_row_stride) && fits(args.v_head_stride) && IsAligned(args.k) &&
                     IsAligned(args.v) && IsAligned(args.keys) && IsAligned(args.values);
  const auto blocks = static_cast<unsigned>(args.rows);
  if (packs) {
    TANDEM_LAUNCH((WriteKvKernel<T, kPack>), blocks, kThreads, 0, stream, args);
  } else {
    TANDEM_LAUNCH((WriteKvKernel<T, 1>), blocks, kThreads, 0, stream, args);
  }
  return cudaGetLastError();
}

// A launch with no blocks is an error.
template <typename Args>
cudaError_t LaunchByType(const Args& args, cudaStream_t stream) {
  if (args.rows == 0) return cudaSuccess;
  return args.type == Element::kFloat32 ? LaunchOf<float>(args, stream)
                                        : LaunchOf<__nv_bfloat16>(args, stream);
}

}  // namespace

cudaError_t Launch(const RmsNorm& args, cudaStream_t stream) { return LaunchByType(args, stream); }
cudaError_t Launch(const SwiGlu& args, cudaStream_t stream) { return LaunchByType(args, stream); }
cudaError_t Launch(const Rotate& args, cudaStream_t stream) { return LaunchByType(args, stream); }
cudaError_t Launch(const WriteKv& args, cudaStream_t stream) { return LaunchByType(args, stream); }

cudaError_t Launch(const RotaryTable& args, cudaStream_t stream) {
  if (args.rows == 0) return cudaSuccess;
  TANDEM_LAUNCH(RotaryTableKernel, Blocks(args.rows * args.size, kThreads), kThreads, 0, stream,
                args);
  return cudaGetLastError();
}

cudaError_t Launch(const RowLogProbs& args, cudaStream_t stream) {
  if (args.rows == 0) return cudaSuccess;
  TANDEM_LAUNCH(RowLogProbsKernel, static_cast<unsigned>(args.rows), kExpSumThreads, 0, stream,
                args);
  return cudaGetLastError();
}

}  // namespace tandem::model::cuda
