#include <algorithm>

#include "common/device/launch.cuh"
#include "common/model/kernels/activation_rows.h"
#include "common/model/kernels/cuda/device_math.cuh"
#include "common/model/kernels/cuda/exp_sum.cuh"
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
__global__ void __launch_bounds__(kThreads) NormKernel(const Norm args) {
  device::AwaitPredecessor();
  constexpr int kPack = kPackOf<T>;
  __shared__ float scratch[kWarp];
  const int64_t start = static_cast<int64_t>(blockIdx.x) * args.size;
  const T* x = static_cast<const T*>(args.x) + start;
  const T* const delta =
      args.delta == nullptr ? nullptr : static_cast<const T*>(args.delta) + start;
  const bool centered = args.spec.kind == NormKind::kLayer;
  float total = 0.0f;  // of the elements, or of their squares
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
    for (int i = 0; i < kPack; ++i) {
      const float element = ToFloat(piece.at[i]);
      total += centered ? element : element * element;
    }
  }
  const float size = static_cast<float>(args.size);
  // Each thread reads back only its own writes.
  if (delta != nullptr) x = static_cast<const T*>(args.sum) + start;
  float mean = 0.0f;
  float mean_square = BlockSum(total, scratch) / size;
  if (centered) {
    mean = mean_square;
    float squares = 0.0f;
    for (int64_t j = static_cast<int64_t>(threadIdx.x) * kPack; j < args.size;
         j += kThreads * kPack) {
      const int64_t count = args.size - j;
      const Pack<T, kPack> piece = LoadPack<T, kWhole>(x + j, count);
      for (int i = 0; i < kPack && i < count; ++i) {
        const float difference = ToFloat(piece.at[i]) - mean;
        squares += difference * difference;
      }
    }
    mean_square = BlockSum(squares, scratch) / size;
  }
  const float inverse = 1.0f / sqrtf(mean_square + static_cast<float>(args.spec.eps));
  if (args.inverse != nullptr && threadIdx.x == 0) {
    args.inverse[blockIdx.x] = inverse;
    if (centered) args.mean[blockIdx.x] = mean;
  }
  const T* const weight = static_cast<const T*>(args.weight);
  const T* const bias = static_cast<const T*>(args.bias);
  const float offset = args.spec.unit_offset ? 1.0f : 0.0f;
  T* const out = static_cast<T*>(args.out) + start;
  for (int64_t j = static_cast<int64_t>(threadIdx.x) * kPack; j < args.size;
       j += kThreads * kPack) {
    const int64_t count = args.size - j;
    const Pack<T, kPack> piece = LoadPack<T, kWhole>(x + j, count);
    float normed[kPack];
    for (int i = 0; i < kPack; ++i) normed[i] = (ToFloat(piece.at[i]) - mean) * inverse;
    if (weight != nullptr) {
      const Pack<T, kPack> scale = LoadPack<T, kWhole>(weight + j, count);
      for (int i = 0; i < kPack; ++i) normed[i] *= ToFloat(scale.at[i]) + offset;
    }
    if (bias != nullptr) {
      const Pack<T, kPack> added = LoadPack<T, kWhole>(bias + j, count);
      for (int i = 0; i < kPack; ++i) normed[i] = normed[i] + ToFloat(added.at[i]);
    }
    Pack<T, kPack> result;
    for (int i = 0; i < kPack; ++i) FromFloat(normed[i], result.at[i]);
    StorePack<T, kWhole>(result, out + j, count);
  }
}

__device__ inline float Softplus(float x) {
  return x > 0.0f ? x + log1pf(expf(-x)) : log1pf(expf(x));
}

// slopes: of xIELU, like kernels/activation_rows.h.
__device__ inline float Activated(Activation activation, float x, const float (&slopes)[2]) {
  switch (activation) {
    case Activation::kSilu:
      return x * Sigmoid(x);
    case Activation::kGelu:
      return x * (0.5f * erfcf(x * -0.7071067811865476f));
    case Activation::kGeluTanh:
      return x * Sigmoid(x * 1.5957691216057308f * (1.0f + 0.044715f * x * x));
    case Activation::kQuickGelu:
      return x * Sigmoid(x * kernels::kQuickGeluSlope);
    case Activation::kRelu:
      return x < 0.0f ? 0.0f : x;
    case Activation::kRelu2:
      return x < 0.0f ? 0.0f : x * x;
    case Activation::kXielu:
    case Activation::kClampedSwiglu:  // ClampedSwiglu()
      break;
  }
  const float bent =
      x > 0.0f ? slopes[0] * x * x : (expm1f(fminf(x, kernels::kXieluEps)) - x) * slopes[1];
  return bent + kernels::kXieluBeta * x;
}

// Like kernels/activation-inl.h. Comparisons with NaN are false, so that NaN stays NaN.
__device__ inline float ClampedSwiglu(float gate, float up) {
  const float x = gate > kernels::kSwigluLimit ? kernels::kSwigluLimit : gate;
  const float y = up > kernels::kSwigluLimit    ? kernels::kSwigluLimit
                  : up < -kernels::kSwigluLimit ? -kernels::kSwigluLimit
                                                : up;
  return x * Sigmoid(x * kernels::kSwigluSlope) * (y + 1.0f);
}

// One row of blocks per row of the batch.
template <typename T, int N>
__global__ void __launch_bounds__(kThreads) ActivateKernel(const Activate args) {
  device::AwaitPredecessor();
  using Piece = Pack<T, N>;
  const int64_t j = (static_cast<int64_t>(blockIdx.y) * kThreads + threadIdx.x) * N;
  if (j >= args.size) return;
  const int64_t in_size = args.gated ? 2 * args.size : args.size;
  const T* const in = static_cast<const T*>(args.in) + blockIdx.x * in_size + j;
  float slopes[2] = {0.0f, 0.0f};
  if (args.activation == Activation::kXielu) {
    const T* const alphas = static_cast<const T*>(args.alphas);
    slopes[0] = Softplus(ToFloat(alphas[0]));
    slopes[1] = kernels::kXieluBeta + Softplus(ToFloat(alphas[1]));
  }
  const Piece x = *reinterpret_cast<const Piece*>(in);
  float values[N];
  if (args.activation == Activation::kClampedSwiglu) {
    const Piece up = *reinterpret_cast<const Piece*>(in + args.size);
    for (int i = 0; i < N; ++i) values[i] = ClampedSwiglu(ToFloat(x.at[i]), ToFloat(up.at[i]));
  } else {
    for (int i = 0; i < N; ++i) values[i] = Activated(args.activation, ToFloat(x.at[i]), slopes);
  }
  if (args.gated && args.activation != Activation::kClampedSwiglu) {
    const Piece up = *reinterpret_cast<const Piece*>(in + args.size);
    for (int i = 0; i < N; ++i) values[i] *= ToFloat(up.at[i]);
  }
  Piece out;
  for (int i = 0; i < N; ++i) FromFloat(values[i], out.at[i]);
  *reinterpret_cast<Piece*>(static_cast<T*>(args.out) + blockIdx.x * args.size + j) = out;
}

__global__ void __launch_bounds__(kThreads) RotaryTableKernel(const RotaryTable args) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= args.rows * args.size) return;
  const float angle =
      static_cast<float>(args.positions[i / args.size]) * args.frequencies[i % args.size];
  args.cos[i] = cosf(angle) * args.factor;
  args.sin[i] = sinf(angle) * args.factor;
}

// One warp per head per row.
template <typename T>
__global__ void __launch_bounds__(kWarpsOfBlock* kWarp) RotateKernel(const Rotate args) {
  device::AwaitPredecessor();
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

// What a norm subtracts from its elements, and then multiplies them by.
struct Moments {
  float mean = 0.0f;
  float inverse = 1.0f;
};

// Heads that are normed together, or one head, as pairs of elements: those that rotate together,
// then the others.
template <typename T>
struct HeadGroup {
  const TransformHeads& args;
  int64_t row;
  const T* in;
  const T* weight;
  const T* bias;

  // The elements of pair `t`, counted through the group.
  __device__ void PlaceOf(int t, int& first, int& second) const {
    const int of_head = args.head_dim / 2;
    const int half = args.rotary_dim / 2;
    const int start = t / of_head * args.head_dim;
    const int p = t % of_head;
    if (args.interleaved || p >= half) {
      first = start + 2 * p;
      second = first + 1;
    } else {
      first = start + p;
      second = first + half;
    }
  }

  __device__ float Normed(float x, int at, const Moments& moments) const {
    x = (x - moments.mean) * moments.inverse;
    if (weight != nullptr) {
      const float w = ToFloat(weight[at]);
      x *= args.unit_offset ? 1.0f + w : w;
    }
    return bias == nullptr ? x : x + ToFloat(bias[at]);
  }

  // Loads pair `t`; `before`: normed first, or null.
  __device__ void Load(int t, const Moments* before, float& a, float& b) const {
    int first, second;
    PlaceOf(t, first, second);
    a = ToFloat(in[first]);
    b = ToFloat(in[second]);
    if (before == nullptr) return;
    a = Normed(a, first, *before);
    b = Normed(b, second, *before);
  }

  __device__ void Rotate(int t, float& a, float& b) const {
    const int half = args.rotary_dim / 2;
    const int p = t % (args.head_dim / 2);
    if (p >= half) return;
    const float cos = args.cos[row * half + p];
    const float sin = args.sin[row * half + p];
    const float rotated = a * cos - b * sin;
    b = b * cos + a * sin;
    a = rotated;
  }

  // Of the pairs as they are loaded, or rotated.
  __device__ Moments MomentsOf(int pairs, int lane, bool rotated) const {
    Moments moments;
    const auto sum = [&](bool squares) {
      float total = 0.0f;
      for (int t = lane; t < pairs; t += kWarp) {
        float a, b;
        Load(t, nullptr, a, b);
        if (rotated) Rotate(t, a, b);
        a -= moments.mean;
        b -= moments.mean;
        total += squares ? a * a + b * b : a + b;
      }
      return WarpSum(total) / static_cast<float>(2 * pairs);
    };
    if (args.norm == TransformHeads::Norm::kLayer) moments.mean = sum(false);
    moments.inverse = 1.0f / sqrtf(sum(true) + args.eps);
    return moments;
  }
};

// One warp per group of heads per row.
template <typename T>
__global__ void __launch_bounds__(kWarpsOfBlock* kWarp)
    TransformHeadsKernel(const TransformHeads args) {
  device::AwaitPredecessor();
  const int size = args.all_heads ? args.num_heads * args.head_dim : args.head_dim;
  const int groups = args.all_heads ? 1 : args.num_heads;
  const int64_t index = static_cast<int64_t>(blockIdx.x) * kWarpsOfBlock + threadIdx.x / kWarp;
  if (index >= args.rows * groups) return;  // the whole warp
  const int64_t row = index / groups;
  const int column = static_cast<int>(index % groups) * size;
  const int lane = threadIdx.x % kWarp;
  const int pairs = size / 2;
  const int at = args.own_weights ? column : 0;
  const T* const weight =
      args.weight == nullptr ? nullptr : static_cast<const T*>(args.weight) + at;
  const T* const bias = args.bias == nullptr ? nullptr : static_cast<const T*>(args.bias) + at;
  const HeadGroup<T> group{
      args, row, static_cast<const T*>(args.in) + row * args.in_stride + column, weight, bias};
  T* const out = static_cast<T*>(args.out) +
                 row * args.num_heads * static_cast<int64_t>(args.head_dim) + column;
  const bool normed = args.norm != TransformHeads::Norm::kNone;
  Moments moments;
  if (normed) moments = group.MomentsOf(pairs, lane, args.after_rotation);
  const Moments* const before = normed && !args.after_rotation ? &moments : nullptr;
  const float scale = args.row_scale == nullptr ? 1.0f : args.row_scale[row];
  for (int t = lane; t < pairs; t += kWarp) {
    int first, second;
    group.PlaceOf(t, first, second);
    float a, b;
    group.Load(t, before, a, b);
    group.Rotate(t, a, b);
    if (normed && args.after_rotation) {
      a = group.Normed(a, first, moments);
      b = group.Normed(b, second, moments);
    }
    FromFloat(a * scale, out[first]);
    FromFloat(b * scale, out[second]);
  }
}

// Of keys or of values.
struct CacheRows {
  const void* from = nullptr;
  int64_t row_stride = 0;
  int64_t head_stride = 0;
  void* to = nullptr;
  int head_dim = 0;
  int64_t block_stride = 0;
};

template <typename T, int N>
__device__ void WriteRow(const CacheRows& rows, int64_t row, int64_t block, int64_t place,
                         const WriteKv& args) {
  using Piece = Pack<T, N>;
  const int width = args.num_kv_heads * rows.head_dim;
  for (int j = static_cast<int>(threadIdx.x) * N; j < width; j += kThreads * N) {
    const int head = j / rows.head_dim;
    const int i = j % rows.head_dim;
    const int64_t to =
        block * rows.block_stride + (int64_t{head} * args.block_size + place) * rows.head_dim + i;
    const T* const from =
        static_cast<const T*>(rows.from) + row * rows.row_stride + head * rows.head_stride + i;
    *reinterpret_cast<Piece*>(static_cast<T*>(rows.to) + to) =
        *reinterpret_cast<const Piece*>(from);
  }
}

// A block for each row.
template <typename T, int N>
__global__ void __launch_bounds__(kThreads) WriteKvKernel(const WriteKv args) {
  device::AwaitPredecessor();
  const int64_t row = blockIdx.x;
  const int64_t slot = args.slots[row];
  const int64_t block = slot / args.block_size;
  const int64_t place = slot % args.block_size;
  const int64_t tokens = int64_t{args.num_kv_heads} * args.block_size;
  const auto stride = [&](int head_dim) {
    return args.block_stride > 0 ? args.block_stride : tokens * head_dim;
  };
  WriteRow<T, N>({args.k, args.k_row_stride, args.k_head_stride, args.keys, args.head_dim,
                  stride(args.head_dim)},
                 row, block, place, args);
  if (args.v == nullptr) return;
  WriteRow<T, N>({args.v, args.v_row_stride, args.v_head_stride, args.values, args.v_head_dim,
                  stride(args.v_head_dim)},
                 row, block, place, args);
}

// A block for each row.
__global__ void __launch_bounds__(kExpSumThreads) RowLogProbsKernel(const RowLogProbs args) {
  __shared__ float floats[kWarp];
  __shared__ double doubles[kWarp];
  const int64_t row = blockIdx.x;
  const float* const x = args.logits + row * args.vocab;
  const float scale = 1.0f / fmaxf(args.temperatures[row], 1e-30f);
  const float most = MaximumOfRow(x, args.vocab, floats);
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

// Elements of a row that one block of RowLogProbsBackwardKernel computes.
constexpr int kGradientsOfBlock = 8 * kThreads;

// One row of blocks per row.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    RowLogProbsBackwardKernel(const RowLogProbsBackward args) {
  const int64_t row = blockIdx.x;
  const float* const x = args.logits + row * args.vocab;
  T* const out = static_cast<T*>(args.grad) + row * args.vocab;
  const float inverse = 1.0f / fmaxf(args.temperatures[row], 1e-30f);
  const float log_sum_exp = args.log_sum_exp[row];
  const float entropy = args.entropy[row];
  const float grad = args.grad_log_probs[row];
  const float grad_entropy = args.grad_entropy[row];
  const int64_t target = args.targets[row];
  const int64_t begin = static_cast<int64_t>(blockIdx.y) * kGradientsOfBlock;
  const int64_t last = begin + kGradientsOfBlock;
  const int64_t end = last < args.vocab ? last : args.vocab;
  for (int64_t j = begin + threadIdx.x; j < end; j += kThreads) {
    const float logit = x[j];
    // Below this exp() is 0 in float32; an infinite one would make 0 times infinity.
    const float log_p = fmaxf(logit * inverse - log_sum_exp, -200.0f);
    float d = -expf(log_p) * ((log_p + entropy) * grad_entropy + grad);
    if (j == target) d += grad;
    d *= inverse * args.scale;
    if (args.softcap > 0.0f) {
      const float share = logit / args.softcap;
      d *= 1.0f - share * share;
    }
    FromFloat(d, out[j]);
  }
}

template <typename T>
cudaError_t LaunchOf(const Norm& args, cudaStream_t stream) {
  constexpr int kPack = kPackOf<T>;
  // Both instances add in the same order (LoadPack), so alignment does not show in the result.
  const bool packs = args.size % kPack == 0 && IsAligned(args.x) && IsAligned(args.delta) &&
                     IsAligned(args.weight) && IsAligned(args.bias) && IsAligned(args.sum) &&
                     IsAligned(args.out);
  const auto blocks = static_cast<unsigned>(args.rows);
  if (packs) {
    TANDEM_LAUNCH_EARLY((NormKernel<T, true>), blocks, kThreads, 0, stream, args);
  } else {
    TANDEM_LAUNCH_EARLY((NormKernel<T, false>), blocks, kThreads, 0, stream, args);
  }
  return cudaGetLastError();
}

template <typename T>
cudaError_t LaunchOf(const Activate& args, cudaStream_t stream) {
  constexpr int kPack = kPackOf<T>;
  const auto rows = static_cast<unsigned>(args.rows);
  if (args.size % kPack == 0 && IsAligned(args.in) && IsAligned(args.out)) {
    const dim3 grid(rows, Blocks(args.size / kPack, kThreads));
    TANDEM_LAUNCH_EARLY((ActivateKernel<T, kPack>), grid, kThreads, 0, stream, args);
  } else {
    const dim3 grid(rows, Blocks(args.size, kThreads));
    TANDEM_LAUNCH_EARLY((ActivateKernel<T, 1>), grid, kThreads, 0, stream, args);
  }
  return cudaGetLastError();
}

template <typename T>
cudaError_t LaunchOf(const Rotate& args, cudaStream_t stream) {
  const int64_t warps = args.rows * (args.num_heads + args.num_kv_heads);
  TANDEM_LAUNCH_EARLY((RotateKernel<T>), Blocks(warps, kWarpsOfBlock), kWarpsOfBlock * kWarp, 0,
                      stream, args);
  return cudaGetLastError();
}

template <typename T>
cudaError_t LaunchOf(const TransformHeads& args, cudaStream_t stream) {
  const int64_t warps = args.rows * (args.all_heads ? 1 : args.num_heads);
  TANDEM_LAUNCH_EARLY((TransformHeadsKernel<T>), Blocks(warps, kWarpsOfBlock),
                      kWarpsOfBlock * kWarp, 0, stream, args);
  return cudaGetLastError();
}

template <typename T>
cudaError_t LaunchOf(const WriteKv& args, cudaStream_t stream) {
  constexpr int kPack = kPackOf<T>;
  const auto fits = [](int64_t elements) { return elements % kPack == 0; };
  const bool packs = fits(args.head_dim) && fits(args.v_head_dim) && fits(args.block_stride) &&
                     fits(args.k_row_stride) && fits(args.k_head_stride) &&
                     fits(args.v_row_stride) && fits(args.v_head_stride) && IsAligned(args.k) &&
                     IsAligned(args.v) && IsAligned(args.keys) && IsAligned(args.values);
  const auto blocks = static_cast<unsigned>(args.rows);
  if (packs) {
    TANDEM_LAUNCH_EARLY((WriteKvKernel<T, kPack>), blocks, kThreads, 0, stream, args);
  } else {
    TANDEM_LAUNCH_EARLY((WriteKvKernel<T, 1>), blocks, kThreads, 0, stream, args);
  }
  return cudaGetLastError();
}

template <typename T>
cudaError_t LaunchOf(const RowLogProbsBackward& args, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(args.rows), Blocks(args.vocab, kGradientsOfBlock));
  TANDEM_LAUNCH((RowLogProbsBackwardKernel<T>), grid, kThreads, 0, stream, args);
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

cudaError_t Launch(const Norm& args, cudaStream_t stream) { return LaunchByType(args, stream); }
cudaError_t Launch(const Activate& args, cudaStream_t stream) { return LaunchByType(args, stream); }
cudaError_t Launch(const Rotate& args, cudaStream_t stream) { return LaunchByType(args, stream); }
cudaError_t Launch(const TransformHeads& args, cudaStream_t stream) {
  return LaunchByType(args, stream);
}
cudaError_t Launch(const WriteKv& args, cudaStream_t stream) {
  WriteKv given = args;
  if (given.v_head_dim == 0) given.v_head_dim = given.head_dim;
  return LaunchByType(given, stream);
}
cudaError_t Launch(const RowLogProbsBackward& args, cudaStream_t stream) {
  return LaunchByType(args, stream);
}

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
