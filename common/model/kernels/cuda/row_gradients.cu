#include <algorithm>

#include "common/device/launch.cuh"
#include "common/model/kernels/activation_rows.h"
#include "common/model/kernels/cuda/device_math.cuh"
#include "common/model/kernels/cuda/row_gradients.h"

namespace tandem::model::cuda {
namespace {

constexpr int kGradientThreads = 256;
constexpr int kGradientWarps = kGradientThreads / kWarp;
// Blocks of a kernel that sums over rows: about four for each multiprocessor of a large GPU.
constexpr int64_t kMostSumBlocks = 512;
// Larger sums of a block stay in global memory: every architecture has this much shared memory.
constexpr int64_t kMostSharedBytes = 40 << 10;

unsigned BlocksFor(int64_t items, int64_t of_block) {
  return static_cast<unsigned>((items + of_block - 1) / of_block);
}

// Each block takes every gridDim.x-th row. Only one thread adds to an element of a block's sums.
template <typename T, bool kWhole>
__global__ void __launch_bounds__(kGradientThreads)
    NormBackwardKernel(const NormBackward args, bool sums_in_shared) {
  constexpr int kPack = kPackOf<T>;
  constexpr int64_t kStep = int64_t{kGradientThreads} * kPack;
  TANDEM_DYNAMIC_SHARED(float, shared_sums);
  __shared__ float scratch[kWarp];
  const int64_t first = static_cast<int64_t>(threadIdx.x) * kPack;
  const int64_t block_start = static_cast<int64_t>(blockIdx.x) * args.size;
  const bool centered = args.spec.kind == NormKind::kLayer;
  const float size = static_cast<float>(args.size);
  const float offset = args.spec.unit_offset ? 1.0f : 0.0f;
  const T* const weight = static_cast<const T*>(args.weight);
  float* weight_sums = nullptr;
  float* bias_sums = nullptr;
  if (args.weight_sums != nullptr) {
    weight_sums = sums_in_shared ? shared_sums : args.weight_sums + block_start;
  }
  if (args.bias_sums != nullptr) {
    bias_sums = sums_in_shared ? shared_sums + (weight_sums == nullptr ? 0 : args.size)
                               : args.bias_sums + block_start;
  }
  for (int64_t j = first; j < args.size; j += kStep) {
    for (int64_t i = j; i < j + kPack && i < args.size; ++i) {
      if (weight_sums != nullptr) weight_sums[i] = 0.0f;
      if (bias_sums != nullptr) bias_sums[i] = 0.0f;
    }
  }
  for (int64_t row = blockIdx.x; row < args.rows; row += gridDim.x) {
    const int64_t start = row * args.size;
    const T* const x = static_cast<const T*>(args.x) + start;
    const T* const grad_out = static_cast<const T*>(args.grad_out) + start;
    const float mean = centered ? args.mean[row] : 0.0f;
    const float inverse = args.inverse[row];
    float products = 0.0f;  // of the scaled gradients and the normed elements
    float gradients = 0.0f;
    for (int64_t j = first; j < args.size; j += kStep) {
      const int64_t count = args.size - j;
      const Pack<T, kPack> piece = LoadPack<T, kWhole>(x + j, count);
      const Pack<T, kPack> grad = LoadPack<T, kWhole>(grad_out + j, count);
      Pack<T, kPack> scale = grad;
      if (weight != nullptr) scale = LoadPack<T, kWhole>(weight + j, count);
      // Beyond the row gradients are zeros.
      for (int i = 0; i < kPack; ++i) {
        const float normed = (ToFloat(piece.at[i]) - mean) * inverse;
        const float g = ToFloat(grad.at[i]);
        const float scaled = weight == nullptr ? g : g * (ToFloat(scale.at[i]) + offset);
        products += scaled * normed;
        gradients += scaled;
        if (i < count) {
          if (weight_sums != nullptr) weight_sums[j + i] += g * normed;
          if (bias_sums != nullptr) bias_sums[j + i] += g;
        }
      }
    }
    const float mean_product = BlockSum(products, scratch) / size;
    const float mean_gradient = centered ? BlockSum(gradients, scratch) / size : 0.0f;
    T* const grad_x = static_cast<T*>(args.grad_x) + start;
    const T* const extra =
        args.grad_sum == nullptr ? nullptr : static_cast<const T*>(args.grad_sum) + start;
    for (int64_t j = first; j < args.size; j += kStep) {
      const int64_t count = args.size - j;
      const Pack<T, kPack> piece = LoadPack<T, kWhole>(x + j, count);
      const Pack<T, kPack> grad = LoadPack<T, kWhole>(grad_out + j, count);
      Pack<T, kPack> scale = grad, added = grad, result;
      if (weight != nullptr) scale = LoadPack<T, kWhole>(weight + j, count);
      if (extra != nullptr) added = LoadPack<T, kWhole>(extra + j, count);
      for (int i = 0; i < kPack; ++i) {
        const float normed = (ToFloat(piece.at[i]) - mean) * inverse;
        const float g = ToFloat(grad.at[i]);
        const float scaled = weight == nullptr ? g : g * (ToFloat(scale.at[i]) + offset);
        float d = inverse * (scaled - mean_gradient - normed * mean_product);
        if (extra != nullptr) d += ToFloat(added.at[i]);
        FromFloat(d, result.at[i]);
      }
      StorePack<T, kWhole>(result, grad_x + j, count);
    }
  }
  if (!sums_in_shared) return;
  for (int64_t j = first; j < args.size; j += kStep) {
    for (int64_t i = j; i < j + kPack && i < args.size; ++i) {
      if (weight_sums != nullptr) args.weight_sums[block_start + i] = weight_sums[i];
      if (bias_sums != nullptr) args.bias_sums[block_start + i] = bias_sums[i];
    }
  }
}

struct ValueAndSlope {
  float value;
  float slope;
};

// Like kernels/activation-inl.h.
__device__ inline ValueAndSlope ActivatedWithSlope(Activation activation, float x) {
  switch (activation) {
    case Activation::kSilu: {
      const float s = Sigmoid(x);
      return {x * s, x * s * (1.0f - s) + s};
    }
    case Activation::kGelu: {
      const float cumulative = 0.5f * erfcf(x * -0.7071067811865476f);
      return {x * cumulative, cumulative + x * 0.3989422804014327f * expf(-0.5f * x * x)};
    }
    case Activation::kGeluTanh: {
      const float s = Sigmoid(x * 1.5957691216057308f * (1.0f + 0.044715f * x * x));
      // Of the sigmoid's argument.
      const float slope = 1.5957691216057308f * (1.0f + 3.0f * 0.044715f * x * x);
      return {x * s, x * s * (1.0f - s) * slope + s};
    }
    case Activation::kQuickGelu: {
      const float s = Sigmoid(x * kernels::kQuickGeluSlope);
      return {x * s, kernels::kQuickGeluSlope * x * s * (1.0f - s) + s};
    }
    case Activation::kRelu:
      return {x < 0.0f ? 0.0f : x, x > 0.0f ? 1.0f : 0.0f};
    case Activation::kRelu2: {
      const float positive = x < 0.0f ? 0.0f : x;
      return {positive * positive, 2.0f * positive};
    }
    case Activation::kXielu:
    case Activation::kClampedSwiglu:  // ClampedSwigluGradients()
      break;
  }
  return {NAN, NAN};
}

// Multiplies the gradient of ClampedSwiglu() by its slopes, 0 beyond the limits.
__device__ inline void ClampedSwigluGradients(float gate, float up, float grad, float& grad_gate,
                                              float& grad_up) {
  const bool gate_is_over = gate > kernels::kSwigluLimit;
  const bool up_is_over = up > kernels::kSwigluLimit;
  const bool up_is_under = up < -kernels::kSwigluLimit;
  const float x = gate_is_over ? kernels::kSwigluLimit : gate;
  const float y = up_is_over ? kernels::kSwigluLimit : up_is_under ? -kernels::kSwigluLimit : up;
  const float s = Sigmoid(x * kernels::kSwigluSlope);
  // (x s)' = s + slope x s (1 - s)
  const float bend = s + kernels::kSwigluSlope * x * s * (1.0f - s);
  grad_gate = gate_is_over ? 0.0f : grad * (y + 1.0f) * bend;
  grad_up = up_is_over || up_is_under ? 0.0f : grad * x * s;
}

// One row of blocks per row of the batch.
template <typename T, int N>
__global__ void __launch_bounds__(kGradientThreads)
    ActivateBackwardKernel(const ActivateBackward args) {
  using Piece = Pack<T, N>;
  const int64_t j = (static_cast<int64_t>(blockIdx.y) * kGradientThreads + threadIdx.x) * N;
  if (j >= args.size) return;
  const int64_t row = blockIdx.x;
  const int64_t start = row * (args.gated ? 2 * args.size : args.size) + j;
  const T* const in = static_cast<const T*>(args.in) + start;
  T* const grad_in = static_cast<T*>(args.grad_in) + start;
  const Piece x = *reinterpret_cast<const Piece*>(in);
  const Piece grad =
      *reinterpret_cast<const Piece*>(static_cast<const T*>(args.grad_out) + row * args.size + j);
  Piece of_x;
  if (!args.gated) {
    for (int i = 0; i < N; ++i) {
      const float slope = ActivatedWithSlope(args.activation, ToFloat(x.at[i])).slope;
      FromFloat(ToFloat(grad.at[i]) * slope, of_x.at[i]);
    }
    *reinterpret_cast<Piece*>(grad_in) = of_x;
    return;
  }
  const Piece up = *reinterpret_cast<const Piece*>(in + args.size);
  Piece of_up;
  for (int i = 0; i < N; ++i) {
    const float g = ToFloat(grad.at[i]);
    float grad_gate, grad_up;
    if (args.activation == Activation::kClampedSwiglu) {
      ClampedSwigluGradients(ToFloat(x.at[i]), ToFloat(up.at[i]), g, grad_gate, grad_up);
    } else {
      const ValueAndSlope at = ActivatedWithSlope(args.activation, ToFloat(x.at[i]));
      grad_gate = g * ToFloat(up.at[i]) * at.slope;
      grad_up = g * at.value;
    }
    FromFloat(grad_gate, of_x.at[i]);
    FromFloat(grad_up, of_up.at[i]);
  }
  *reinterpret_cast<Piece*>(grad_in) = of_x;
  *reinterpret_cast<Piece*>(grad_in + args.size) = of_up;
}

// The gradient of one head of q or k by a warp. norm: its weight, or null; then norm_sums, [head_dim]
// in shared memory, gets the norm's gradient, of which each lane adds to its own elements.
template <typename T>
struct HeadBackward {
  int head_dim;
  const T* grad;
  const float* cos;
  const float* sin;
  const T* in;
  const T* norm;
  float eps;
  float* norm_sums;
  T* out;

  // The gradients of elements i and head_dim / 2 + i before the rotation.
  __device__ void RotatedBack(int i, float& first, float& second) const {
    const int half = head_dim / 2;
    const float a = ToFloat(grad[i]);
    const float b = ToFloat(grad[half + i]);
    first = a * cos[i] + b * sin[i];
    second = b * cos[i] - a * sin[i];
  }

  __device__ void Plain(int lane) const {
    const int half = head_dim / 2;
    for (int i = lane; i < half; i += kWarp) {
      float first, second;
      RotatedBack(i, first, second);
      FromFloat(first, out[i]);
      FromFloat(second, out[half + i]);
    }
  }

  __device__ void Normed(int lane) const {
    const int half = head_dim / 2;
    float squares = 0.0f;
    float products = 0.0f;  // of the scaled gradients and the elements
    for (int i = lane; i < half; i += kWarp) {
      float first, second;
      RotatedBack(i, first, second);
      const float x = ToFloat(in[i]);
      const float y = ToFloat(in[half + i]);
      squares += x * x + y * y;
      products += first * ToFloat(norm[i]) * x + second * ToFloat(norm[half + i]) * y;
    }
    const float size = static_cast<float>(head_dim);
    const float inverse = 1.0f / sqrtf(WarpSum(squares) / size + eps);
    const float mean_product = WarpSum(products) * inverse / size;
    for (int i = lane; i < half; i += kWarp) {
      float first, second;
      RotatedBack(i, first, second);
      const float x = ToFloat(in[i]) * inverse;
      const float y = ToFloat(in[half + i]) * inverse;
      norm_sums[i] += first * x;
      norm_sums[half + i] += second * y;
      FromFloat(inverse * (first * ToFloat(norm[i]) - x * mean_product), out[i]);
      FromFloat(inverse * (second * ToFloat(norm[half + i]) - y * mean_product), out[half + i]);
    }
  }
};

// One warp per head of q, k or v per row; with norms a warp takes many.
template <typename T>
__global__ void __launch_bounds__(kGradientThreads)
    RotateBackwardKernel(const RotateBackward args) {
  TANDEM_DYNAMIC_SHARED(float, shared_sums);
  const int warp = threadIdx.x / kWarp;
  const int lane = threadIdx.x % kWarp;
  const int rotated = args.num_heads + args.num_kv_heads;
  const int heads = rotated + args.num_kv_heads;
  const int half = args.head_dim / 2;
  const int64_t width = static_cast<int64_t>(rotated) * args.head_dim +
                        static_cast<int64_t>(args.num_kv_heads) * args.v_head_dim;
  const bool normed = args.norm_sums != nullptr;
  float* const own_sums = shared_sums + (normed ? warp * 2 * args.head_dim : 0);  // q's, then k's
  if (normed) {
    for (int i = lane; i < half; i += kWarp) {
      for (int part = 0; part < 4; ++part) own_sums[part * half + i] = 0.0f;
    }
  }
  const int64_t items = args.rows * heads;
  for (int64_t index = static_cast<int64_t>(blockIdx.x) * kGradientWarps + warp; index < items;
       index += static_cast<int64_t>(gridDim.x) * kGradientWarps) {
    const int64_t row = index / heads;
    const int head = static_cast<int>(index % heads);
    T* const out = static_cast<T*>(args.grad_qkv) + row * width;
    if (head >= rotated) {
      const int64_t column = static_cast<int64_t>(head - rotated) * args.v_head_dim;
      T* const to = out + static_cast<int64_t>(rotated) * args.head_dim + column;
      const T* const from = static_cast<const T*>(args.grad_v) +
                            row * args.num_kv_heads * static_cast<int64_t>(args.v_head_dim) +
                            column;
      for (int i = lane; i < args.v_head_dim; i += kWarp) {
        if (args.grad_v == nullptr) {
          FromFloat(0.0f, to[i]);
        } else {
          to[i] = from[i];
        }
      }
      continue;
    }
    const bool is_query = head < args.num_heads;
    const int64_t column = static_cast<int64_t>(head) * args.head_dim;
    const T* const grads = static_cast<const T*>(is_query ? args.grad_q : args.grad_k);
    if (grads == nullptr) {
      for (int i = lane; i < args.head_dim; i += kWarp) FromFloat(0.0f, out[column + i]);
      continue;
    }
    const int64_t at =
        is_query ? row * args.num_heads + head : row * args.num_kv_heads + head - args.num_heads;
    const HeadBackward<T> backward{
        args.head_dim,
        grads + at * args.head_dim,
        args.cos + row * half,
        args.sin + row * half,
        normed ? static_cast<const T*>(args.qkv) + row * args.qkv_stride + column : nullptr,
        static_cast<const T*>(is_query ? args.q_norm : args.k_norm),
        args.eps,
        own_sums + (is_query ? 0 : args.head_dim),
        out + column};
    if (normed) {
      backward.Normed(lane);
    } else {
      backward.Plain(lane);
    }
  }
  if (!normed) return;
  __syncthreads();
  float* const sums = args.norm_sums + static_cast<int64_t>(blockIdx.x) * 2 * args.head_dim;
  for (int i = threadIdx.x; i < 2 * args.head_dim; i += kGradientThreads) {
    float sum = 0.0f;
    for (int w = 0; w < kGradientWarps; ++w) sum += shared_sums[w * 2 * args.head_dim + i];
    sums[i] = sum;
  }
}

template <typename T>
cudaError_t LaunchGradientOf(const NormBackward& args, cudaStream_t stream) {
  const bool packs = args.size % kPackOf<T> == 0 && IsAligned(args.x) && IsAligned(args.weight) &&
                     IsAligned(args.grad_out) && IsAligned(args.grad_sum) && IsAligned(args.grad_x);
  const int sums = (args.weight_sums != nullptr ? 1 : 0) + (args.bias_sums != nullptr ? 1 : 0);
  const int64_t bytes = sums * args.size * static_cast<int64_t>(sizeof(float));
  const bool in_shared = sums > 0 && bytes <= kMostSharedBytes;
  const auto shared_bytes = static_cast<size_t>(in_shared ? bytes : 0);
  const auto blocks = static_cast<unsigned>(sums > 0 ? SumBlocks(args) : args.rows);
  if (packs) {
    TANDEM_LAUNCH((NormBackwardKernel<T, true>), blocks, kGradientThreads, shared_bytes, stream,
                  args, in_shared);
  } else {
    TANDEM_LAUNCH((NormBackwardKernel<T, false>), blocks, kGradientThreads, shared_bytes, stream,
                  args, in_shared);
  }
  return cudaGetLastError();
}

template <typename T>
cudaError_t LaunchGradientOf(const ActivateBackward& args, cudaStream_t stream) {
  constexpr int kPack = kPackOf<T>;
  const auto rows = static_cast<unsigned>(args.rows);
  if (args.size % kPack == 0 && IsAligned(args.in) && IsAligned(args.grad_out) &&
      IsAligned(args.grad_in)) {
    const dim3 grid(rows, BlocksFor(args.size / kPack, kGradientThreads));
    TANDEM_LAUNCH((ActivateBackwardKernel<T, kPack>), grid, kGradientThreads, 0, stream, args);
  } else {
    const dim3 grid(rows, BlocksFor(args.size, kGradientThreads));
    TANDEM_LAUNCH((ActivateBackwardKernel<T, 1>), grid, kGradientThreads, 0, stream, args);
  }
  return cudaGetLastError();
}

int64_t WarpBlocks(const RotateBackward& args) {
  return BlocksFor(args.rows * (args.num_heads + 2 * args.num_kv_heads), kGradientWarps);
}

template <typename T>
cudaError_t LaunchGradientOf(const RotateBackward& args, cudaStream_t stream) {
  const bool normed = args.norm_sums != nullptr;
  const size_t shared_bytes =
      normed ? sizeof(float) * kGradientWarps * 2 * static_cast<size_t>(args.head_dim) : 0;
  const auto blocks = static_cast<unsigned>(normed ? SumBlocks(args) : WarpBlocks(args));
  TANDEM_LAUNCH((RotateBackwardKernel<T>), blocks, kGradientThreads, shared_bytes, stream, args);
  return cudaGetLastError();
}

// A launch with no blocks is an error.
template <typename Args>
cudaError_t LaunchGradient(const Args& args, cudaStream_t stream) {
  if (args.rows == 0) return cudaSuccess;
  return args.type == Element::kFloat32 ? LaunchGradientOf<float>(args, stream)
                                        : LaunchGradientOf<__nv_bfloat16>(args, stream);
}

}  // namespace

int64_t SumBlocks(const NormBackward& args) { return std::min(args.rows, kMostSumBlocks); }
int64_t SumBlocks(const RotateBackward& args) { return std::min(WarpBlocks(args), kMostSumBlocks); }

cudaError_t Launch(const NormBackward& args, cudaStream_t stream) {
  return LaunchGradient(args, stream);
}
cudaError_t Launch(const ActivateBackward& args, cudaStream_t stream) {
  return LaunchGradient(args, stream);
}
cudaError_t Launch(const RotateBackward& args, cudaStream_t stream) {
  return LaunchGradient(args, stream);
}

}  // namespace tandem::model::cuda
