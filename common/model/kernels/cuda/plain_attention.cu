#include "common/device/launch.cuh"
#include "common/model/kernels/cuda/device_math.cuh"
#include "common/model/kernels/cuda/paged_attention.h"

namespace tandem::model::cuda {
namespace {

constexpr int kWarps = 4;  // per block; each takes every fourth key

// In elements.
struct Strides {
  int64_t key_block = 0;  // from a block to the next
  int64_t value_block = 0;
  int value = 0;  // from a token's value to the next
};

Strides StridesOf(const PagedAttention& args) {
  const int value = args.shared ? args.head_dim : args.v_head_dim;
  if (args.block_stride > 0) return {args.block_stride, args.block_stride, value};
  const int64_t tokens = int64_t{args.num_kv_heads} * args.block_size;
  return {tokens * args.head_dim, tokens * value, value};
}

// One block per head of each row. A lane holds dims lane, lane + 32, ..: `N` of keys and `V` of values.
// Warps combine their results at the end, in order, so a row's result depends only on the row and its
// keys.
template <typename T, int N, int V>
__global__ void __launch_bounds__(kWarps* kWarp)
    PlainKernel(const PagedAttention args, const Strides strides) {
  __shared__ float warp_most[kWarps];
  __shared__ float warp_sum[kWarps];
  __shared__ float warp_out[kWarps][V * kWarp];
  const int64_t row = blockIdx.x;
  const int head = static_cast<int>(blockIdx.y);
  const int warp = threadIdx.x / kWarp;
  const int lane = threadIdx.x % kWarp;
  const int kv_head = head / (args.num_heads / args.num_kv_heads);
  const int64_t position = args.batch.row_position[row];
  const int64_t last_key =
      args.batch.row_last_key == nullptr ? position : args.batch.row_last_key[row];
  const float slope = SlopeOf(args.alibi, head);
  const int32_t* const pages =
      args.batch.pages + args.batch.page_starts[args.batch.row_sequence[row]];

  float q[N], sums[V];
  const T* const query =
      static_cast<const T*>(args.q) + row * args.q_row_stride + head * args.q_head_stride;
  for (int i = 0; i < N; ++i) {
    const int d = lane + i * kWarp;
    q[i] = d < args.head_dim ? ToFloat(query[d]) : 0.0f;
  }
  for (float& sum : sums) sum = 0.0f;
  float most = -INFINITY;
  float sum = 0.0f;
  for (int64_t key = args.window.OldestSeen(position) + warp; key <= last_key; key += kWarps) {
    const int64_t page = pages[key / args.block_size];
    const int64_t token = kv_head * args.block_size + key % args.block_size;
    const T* const k =
        static_cast<const T*>(args.keys) + page * strides.key_block + token * args.head_dim;
    const T* const v =
        static_cast<const T*>(args.values) + page * strides.value_block + token * strides.value;
    float product = 0.0f;
    float value[V];
    for (int i = 0; i < N; ++i) {
      const int d = lane + i * kWarp;
      product += d < args.head_dim ? q[i] * ToFloat(k[d]) : 0.0f;
    }
    for (int i = 0; i < V; ++i) {
      const int d = lane + i * kWarp;
      value[i] = d < args.v_head_dim ? ToFloat(v[d]) : 0.0f;
    }
    float score = WarpSum(product) * args.scale;
    if (args.softcap > 0.0f) score = args.softcap * tanhf(score / args.softcap);
    score += slope * static_cast<float>(key - position);
    const float new_most = fmaxf(most, score);
    const float shrunk = expf(most - new_most);  // 0 at the first key
    const float weight = expf(score - new_most);
    sum = sum * shrunk + weight;
    for (int i = 0; i < V; ++i) sums[i] = sums[i] * shrunk + weight * value[i];
    most = new_most;
  }
  if (lane == 0) {
    warp_most[warp] = most;
    warp_sum[warp] = sum;
  }
  for (int i = 0; i < V; ++i) warp_out[warp][i * kWarp + lane] = sums[i];
  __syncthreads();
  // One warp combines the four results in their order; a row's bits do not depend on timing.
  if (warp > 0) return;

  const float sink = args.sinks == nullptr ? -INFINITY : args.sinks[head];
  float total_most = sink;
  for (int w = 0; w < kWarps; ++w) total_most = fmaxf(total_most, warp_most[w]);
  float total = args.sinks == nullptr ? 0.0f : expf(sink - total_most);
  for (int i = 0; i < V; ++i) sums[i] = 0.0f;
  for (int w = 0; w < kWarps; ++w) {
    const float share = expf(warp_most[w] - total_most);  // 0 for a warp without keys
    total += warp_sum[w] * share;
    for (int i = 0; i < V; ++i) sums[i] += warp_out[w][i * kWarp + lane] * share;
  }
  T* const out = static_cast<T*>(args.out) +
                 (row * args.num_heads + head) * static_cast<int64_t>(args.v_head_dim);
  for (int i = 0; i < V; ++i) {
    const int d = lane + i * kWarp;
    if (d < args.v_head_dim) FromFloat(sums[i] / total, out[d]);
  }
}

template <typename T, int N, int V>
cudaError_t LaunchDims(const PagedAttention& args, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(args.batch.num_rows),
                  static_cast<unsigned>(args.num_heads));
  TANDEM_LAUNCH((PlainKernel<T, N, V>), grid, kWarps * kWarp, 0, stream, args, StridesOf(args));
  return cudaGetLastError();
}

// Few sizes, because each is a kernel; dims of 192 and 128 are DeepSeek's.
template <typename T>
cudaError_t LaunchOf(const PagedAttention& args, cudaStream_t stream) {
  const auto fits = [&](int n, int v) {
    return args.head_dim <= n * kWarp && args.v_head_dim <= v * kWarp;
  };
  constexpr int kMost = kMaxPlainHeadDim / kWarp;
  if (fits(2, 2)) return LaunchDims<T, 2, 2>(args, stream);
  if (fits(4, 4)) return LaunchDims<T, 4, 4>(args, stream);
  if (fits(6, 4)) return LaunchDims<T, 6, 4>(args, stream);
  if (fits(kMost, kMost)) return LaunchDims<T, kMost, kMost>(args, stream);
  if (args.shared && fits(kMaxSharedHeadDim / kWarp, kMost)) {
    return LaunchDims<T, kMaxSharedHeadDim / kWarp, kMost>(args, stream);
  }
  return cudaErrorInvalidValue;
}

}  // namespace

cudaError_t LaunchPlain(const PagedAttention& args, cudaStream_t stream) {
  if (args.batch.num_rows == 0) return cudaSuccess;
  PagedAttention given = args;
  if (given.v_head_dim == 0) given.v_head_dim = given.head_dim;
  if (given.shared) given.values = given.keys;
  return args.type == Element::kFloat32 ? LaunchOf<float>(given, stream)
                                        : LaunchOf<__nv_bfloat16>(given, stream);
}

}  // namespace tandem::model::cuda
