#include "common/device/launch.cuh"
#include "common/model/kernels/cuda/delta_recurrence.cuh"

namespace tandem::model::cuda {
namespace {

// Rows of a block that sums the gradient of the norm.
constexpr int kRowsOfNormSum = 32;

// A block has kRowsOfNormSum rows, whose heads its warps take in turns. With x the results, n the normed
// ones, w the norm's weight and s = silu(z): out = n w s.
template <typename T>
__global__ void __launch_bounds__(kDeltaWarps* kWarp)
    OutputBackwardKernel(const DeltaOutputBackward args) {
  __shared__ float sums_of[kDeltaWarps][kMaxDeltaDim];
  const DeltaShape& shape = args.shape;
  const int warp = threadIdx.x / kWarp;
  const int lane = threadIdx.x % kWarp;
  const int64_t first_row = static_cast<int64_t>(blockIdx.x) * kRowsOfNormSum;
  const int64_t left = args.batch.num_rows - first_row;
  const int rows = left < kRowsOfNormSum ? static_cast<int>(left) : kRowsOfNormSum;
  const float size = static_cast<float>(shape.value_dim);
  float of_norm[kDeltaOfLane];
#pragma unroll
  for (int i = 0; i < kDeltaOfLane; ++i) of_norm[i] = 0.0f;
  for (int item = warp; item < rows * shape.num_value_heads; item += kDeltaWarps) {
    const int64_t row = first_row + item / shape.num_value_heads;
    const int head = item % shape.num_value_heads;
    const DeltaSequence sequence(args.batch, args.batch.row_sequence[row]);
    const int64_t place = sequence.first_place + (row - sequence.first_row);
    float* const values = args.values + (place * shape.num_value_heads + head) * shape.value_dim;
    const T* const z = ProjectedRow<T>(shape, row) + GateColumn(shape, head);
    const T* const grad_out = static_cast<const T*>(args.grad_out) +
                              (row * shape.num_value_heads + head) * shape.value_dim;
    T* const grad_z =
        static_cast<T*>(args.grad_projected) + row * ProjectedSize(shape) + GateColumn(shape, head);
    float x[kDeltaOfLane], grad[kDeltaOfLane];
    float squares = 0.0f;
#pragma unroll
    for (int i = 0; i < kDeltaOfLane; ++i) {
      const int d = lane + i * kWarp;
      x[i] = d < shape.value_dim ? values[d] : 0.0f;
      squares = fmaf(x[i], x[i], squares);
    }
    const float inverse = 1.0f / sqrtf(WarpSum(squares) / size + shape.norm_eps);
    float along = 0.0f;
#pragma unroll
    for (int i = 0; i < kDeltaOfLane; ++i) {
      const int d = lane + i * kWarp;
      grad[i] = 0.0f;
      if (d >= shape.value_dim) continue;
      const float normed = x[i] * inverse;
      const float weight = ToFloat(static_cast<const T*>(shape.norm)[d]);
      const float g = ToFloat(grad_out[d]);
      const SiluAndSlope silu(ToFloat(z[d]));
      FromFloat(g * normed * weight * silu.slope, grad_z[d]);
      of_norm[i] = fmaf(g * silu.value, normed, of_norm[i]);
      grad[i] = g * silu.value * weight;  // of the normed ones
      along = fmaf(grad[i], normed, along);
    }
    const float mean = WarpSum(along) / size;
#pragma unroll
    for (int i = 0; i < kDeltaOfLane; ++i) {
      const int d = lane + i * kWarp;
      if (d < shape.value_dim) values[d] = (grad[i] - x[i] * inverse * mean) * inverse;
    }
  }
#pragma unroll
  for (int i = 0; i < kDeltaOfLane; ++i) sums_of[warp][lane + i * kWarp] = of_norm[i];
  __syncthreads();
  for (int d = threadIdx.x; d < shape.value_dim; d += kDeltaWarps * kWarp) {
    float sum = 0.0f;
    for (int w = 0; w < kDeltaWarps; ++w) sum += sums_of[w][d];
    args.norm_sums[static_cast<int64_t>(blockIdx.x) * shape.value_dim + d] = sum;
  }
}

// A block has some columns of one head of a sequence.
template <int kElements>
__global__ void __launch_bounds__(kRecurrenceThreads) ReverseKernel(const DeltaReverse args) {
  constexpr int kTokens = kTokensAtOnce<kElements>;
  constexpr int kQuadsOfToken = kElements / 4 * kPartsOfColumn;
  __shared__ Quad q_of[kTokens * kQuadsOfToken];
  __shared__ Quad k_of[kTokens * kQuadsOfToken];
  __shared__ float grad_of[kTokens * kDeltaColumns];
  __shared__ float beta_of[kTokens];
  __shared__ float decay_of[kTokens];
  __shared__ float scratch[kWarp];
  const DeltaShape& shape = args.shape;
  const DeltaSequence sequence(args.batch, static_cast<int>(blockIdx.x / args.num_heads));
  const auto [of_sequence, head, key_head, first_column, part, of_block, column, is_column] =
      ColumnOfThread(shape, args.first_head, args.num_heads);
  const int64_t keys_stride = shape.key_size();
  const int64_t values_stride = shape.value_size();

  LaneColumn<kElements> grad;
  grad.Clear();
  const int last_piece = (sequence.num_rows - 1) / kTokens * kTokens;
  for (int first = last_piece; first >= 0; first -= kTokens) {
    const int left = sequence.num_rows - first;
    const int count = left < kTokens ? left : kTokens;
    const int64_t place = int64_t{sequence.first_place} + first;
    if ((first + count) % kDeltaChunk == 0 || first == last_piece) {
      const int64_t chunk = place / kDeltaChunk;
      const int64_t boundary =
          ((chunk * args.num_heads + of_sequence) * shape.value_dim + column) * shape.key_dim;
      float product = 0.0f;
      if (is_column) {
#pragma unroll
        for (int i = 0; i < kElements; ++i) {
          const int r = LaneColumn<kElements>::RowOf(part, i);
          if (r >= shape.key_dim) continue;
          args.grad_boundaries[boundary + r] = grad.at[i];
          product = fmaf(grad.at[i], args.boundaries[boundary + r], product);
        }
      }
      product = BlockSum(product, scratch);
      if (threadIdx.x == 0) {
        args.products[(chunk * args.num_heads + of_sequence) * gridDim.y + blockIdx.y] = product;
      }
    }
    __syncthreads();  // the tokens behind have been read
    const int64_t keys = place * keys_stride + int64_t{key_head} * shape.key_dim;
    LoadKeys<kElements>(args.inputs.q + keys, keys_stride, shape.key_dim, count, q_of);
    LoadKeys<kElements>(args.inputs.k + keys, keys_stride, shape.key_dim, count, k_of);
    const int64_t values = place * values_stride + int64_t{head} * shape.value_dim + first_column;
    LoadValues(args.grad_out + values, values_stride, shape.value_dim - first_column, count,
               grad_of);
    for (int t = threadIdx.x; t < count; t += kRecurrenceThreads) {
      const int64_t gate = (place + t) * shape.num_value_heads + head;
      beta_of[t] = args.inputs.beta[gate];
      decay_of[t] = args.inputs.decay[gate];
    }
    __syncthreads();
    for (int t = count - 1; t >= 0; --t) {
      const Quad* const k = k_of + t * kQuadsOfToken;
      const float decay = decay_of[t];
      grad.Add(q_of + t * kQuadsOfToken, part, grad_of[t * kDeltaColumns + of_block], 1.0f);
      const float du = grad.Times(k, part);
      grad.Add(k, part, -decay * beta_of[t] * du, decay);
      if (part == 0 && is_column) args.du[values + t * values_stride + of_block] = du;
    }
  }
}

// A block has a head of a chunk; a thread the tokens i, i + .. of it. Products rather than exponentials
// of differences of sums, which would lose what a strong decay leaves of them.
__global__ void __launch_bounds__(kDeltaChunk) RatiosKernel(const DeltaRatios args) {
  const int64_t chunk = blockIdx.x / args.num_heads;
  const int of_chunk = static_cast<int>(blockIdx.x % args.num_heads);
  const int i = threadIdx.x;
  const float* const decay =
      args.decay + chunk * kDeltaChunk * args.num_value_heads + args.first_head + of_chunk;
  float* const ratios =
      args.ratios + (chunk * args.num_heads + of_chunk) * kDeltaChunk * kDeltaChunk;
  float ratio = 1.0f;
  for (int t = 0; t < kDeltaChunk; ++t) {
    if (t > i) ratio *= decay[int64_t{t} * args.num_value_heads];
    ratios[t * kDeltaChunk + i] = t < i ? 0.0f : ratio;
  }
}

// A block has a head of a chunk.
template <typename T>
__global__ void __launch_bounds__(kDeltaWarps* kWarp)
    GatesBackwardKernel(const DeltaGatesBackward args) {
  __shared__ float of_log[kDeltaChunk];
  __shared__ float of_bias[kDeltaChunk];
  const DeltaShape& shape = args.shape;
  const int64_t chunk = blockIdx.x / args.num_heads;
  const int of_chunk = static_cast<int>(blockIdx.x % args.num_heads);
  const int head = args.first_head + of_chunk;
  const int lane = threadIdx.x % kWarp;
  const DeltaSequence sequence(args.batch, args.chunk_sequence[chunk]);
  const int first = static_cast<int>(chunk * kDeltaChunk - sequence.first_place);
  const int left = sequence.num_rows - first;
  const int count = left < kDeltaChunk ? left : kDeltaChunk;
  const float rate = expf(ToFloat(static_cast<const T*>(shape.a_log)[head]));
  const float bias = ToFloat(static_cast<const T*>(shape.dt_bias)[head]);
  for (int t = threadIdx.x / kWarp; t < count; t += kDeltaWarps) {
    const int64_t gate = (chunk * kDeltaChunk + t) * shape.num_value_heads + head;
    float grad_beta = 0.0f;
    for (int d = lane; d < shape.value_dim; d += kWarp) {
      const int64_t at = gate * shape.value_dim + d;
      grad_beta = fmaf(args.du[at], args.error[at], grad_beta);
    }
    grad_beta = WarpSum(grad_beta);
    if (lane > 0) continue;
    // a = exp(-rate softplus(x)): d log a / dx = -rate sigmoid(x), d log a / d a_log = log a.
    const int64_t row = sequence.first_row + first + t;
    T* const grad = static_cast<T*>(args.grad_projected) + row * ProjectedSize(shape);
    const float x = ToFloat(ProjectedRow<T>(shape, row)[DecayColumn(shape, head)]) + bias;
    const float of_rate =
        -rate * args.log_decay[(chunk * args.num_heads + of_chunk) * kDeltaChunk + t];
    of_log[t] = of_rate * DeltaSoftplus(x);
    of_bias[t] = of_rate * Sigmoid(x);
    FromFloat(of_bias[t], grad[DecayColumn(shape, head)]);
    const float beta = args.inputs.beta[gate];
    FromFloat(grad_beta * beta * (1.0f - beta), grad[BetaColumn(shape, head)]);
  }
  __syncthreads();
  if (threadIdx.x > 0) return;
  float log_sum = 0.0f;
  float bias_sum = 0.0f;
  for (int t = 0; t < count; ++t) {
    log_sum += of_log[t];
    bias_sum += of_bias[t];
  }
  args.a_log_sums[chunk * shape.num_value_heads + head] = log_sum;
  args.dt_bias_sums[chunk * shape.num_value_heads + head] = bias_sum;
}

}  // namespace

int64_t SumBlocks(const DeltaOutputBackward& args) {
  return (args.batch.num_rows + kRowsOfNormSum - 1) / kRowsOfNormSum;
}

cudaError_t Launch(const DeltaOutputBackward& args, cudaStream_t stream) {
  if (!DeltaFits(args.shape)) return cudaErrorInvalidValue;
  if (args.batch.num_rows == 0) return cudaSuccess;
  const auto blocks = static_cast<unsigned>(SumBlocks(args));
  constexpr int kThreads = kDeltaWarps * kWarp;
  if (args.shape.type == Element::kFloat32) {
    TANDEM_LAUNCH(OutputBackwardKernel<float>, blocks, kThreads, 0, stream, args);
  } else {
    TANDEM_LAUNCH(OutputBackwardKernel<__nv_bfloat16>, blocks, kThreads, 0, stream, args);
  }
  return cudaGetLastError();
}

cudaError_t Launch(const DeltaReverse& args, cudaStream_t stream) {
  if (!DeltaFits(args.shape)) return cudaErrorInvalidValue;
  if (args.batch.num_sequences == 0 || args.num_heads == 0) return cudaSuccess;
  const dim3 grid(static_cast<unsigned>(args.batch.num_sequences * args.num_heads),
                  static_cast<unsigned>(DeltaTiles(args.shape)));
  WithElementsOfLane(args.shape.key_dim, [&](auto elements) {
    constexpr int kElements = decltype(elements)::value;
    TANDEM_LAUNCH(ReverseKernel<kElements>, grid, kRecurrenceThreads, 0, stream, args);
  });
  return cudaGetLastError();
}

cudaError_t Launch(const DeltaRatios& args, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(args.num_chunks * args.num_heads);
  if (blocks == 0) return cudaSuccess;
  TANDEM_LAUNCH(RatiosKernel, blocks, kDeltaChunk, 0, stream, args);
  return cudaGetLastError();
}

cudaError_t Launch(const DeltaGatesBackward& args, cudaStream_t stream) {
  if (!DeltaFits(args.shape)) return cudaErrorInvalidValue;
  const auto blocks = static_cast<unsigned>(args.num_chunks * args.num_heads);
  if (blocks == 0) return cudaSuccess;
  constexpr int kThreads = kDeltaWarps * kWarp;
  if (args.shape.type == Element::kFloat32) {
    TANDEM_LAUNCH(GatesBackwardKernel<float>, blocks, kThreads, 0, stream, args);
  } else {
    TANDEM_LAUNCH(GatesBackwardKernel<__nv_bfloat16>, blocks, kThreads, 0, stream, args);
  }
  return cudaGetLastError();
}

}  // namespace tandem::model::cuda
