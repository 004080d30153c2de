#include "common/device/launch.cuh"
#include "common/model/kernels/cuda/delta_rule.cuh"

namespace tandem::model::cuda {
namespace {

constexpr int kWeightThreads = 128;  // a channel each
// Rows of a block that sums the gradient of the weights.
constexpr int kRowsOfWeightSum = 64;

// A warp has a head of a row; computes what the forward pass made of it again.
template <typename T>
__global__ void __launch_bounds__(kDeltaWarps* kWarp)
    ConvolveBackwardKernel(const DeltaConvolveBackward args) {
  const DeltaShape& shape = args.shape;
  const int heads = 2 * shape.num_key_heads + shape.num_value_heads;
  const int64_t item = static_cast<int64_t>(blockIdx.x) * kDeltaWarps + threadIdx.x / kWarp;
  const int64_t row = item / heads;
  if (row >= args.batch.num_rows) return;  // the whole warp
  const int lane = threadIdx.x % kWarp;
  const DeltaSequence sequence(args.batch, args.batch.row_sequence[row]);
  const int t = static_cast<int>(row - sequence.first_row);
  const int64_t place = int64_t{sequence.first_place} + t;
  const DeltaHead head(shape, static_cast<int>(item % heads));
  float activated[kDeltaOfLane], slope[kDeltaOfLane], grad[kDeltaOfLane];
  float squares = 0.0f;
#pragma unroll
  for (int i = 0; i < kDeltaOfLane; ++i) {
    const int d = lane + i * kWarp;
    activated[i] = 0.0f;
    slope[i] = 0.0f;
    grad[i] = 0.0f;
    if (d >= head.dim) continue;
    const SiluAndSlope silu(Convolved<T>(shape, args.batch, sequence, t, head.channel + d));
    activated[i] = silu.value;
    slope[i] = silu.slope;
    squares = fmaf(activated[i], activated[i], squares);
  }
  if (head.key_head >= 0) {
    // d(x / |x|) = (g - y (y . g)) / |x|
    const float* const from =
        (head.is_query ? args.grad_q : args.grad_k) +
        ((place / kDeltaChunk * shape.num_key_heads + head.key_head) * kDeltaChunk +
         place % kDeltaChunk) *
            shape.key_dim;
    const float inverse = 1.0f / sqrtf(WarpSum(squares) + kDeltaKeyEps);
    const float scale = head.is_query ? 1.0f / sqrtf(static_cast<float>(shape.key_dim)) : 1.0f;
    float along = 0.0f;
#pragma unroll
    for (int i = 0; i < kDeltaOfLane; ++i) {
      const int d = lane + i * kWarp;
      if (d < head.dim) grad[i] = from[d];
      along = fmaf(activated[i] * inverse, grad[i], along);
    }
    along = WarpSum(along);
#pragma unroll
    for (int i = 0; i < kDeltaOfLane; ++i) {
      grad[i] = (grad[i] - activated[i] * inverse * along) * inverse * scale;
    }
  } else {
    const int64_t at = place * shape.num_value_heads + head.value_head;
    const float beta = args.inputs.beta[at];
#pragma unroll
    for (int i = 0; i < kDeltaOfLane; ++i) {
      const int d = lane + i * kWarp;
      if (d < head.dim) grad[i] = beta * args.du[at * shape.value_dim + d];
    }
  }
  float* const to = args.grad_sums + row * shape.channels() + head.channel;
#pragma unroll
  for (int i = 0; i < kDeltaOfLane; ++i) {
    const int d = lane + i * kWarp;
    if (d < head.dim) to[d] = grad[i] * slope[i];
  }
}

// A thread has a channel of some rows.
template <typename T>
__global__ void __launch_bounds__(kWeightThreads)
    WeightsBackwardKernel(const DeltaWeightsBackward args) {
  const DeltaShape& shape = args.shape;
  const int64_t channels = shape.channels();
  const int64_t channel = static_cast<int64_t>(blockIdx.y) * kWeightThreads + threadIdx.x;
  if (channel >= channels) return;
  const int64_t first_row = static_cast<int64_t>(blockIdx.x) * kRowsOfWeightSum;
  const int64_t end = first_row + kRowsOfWeightSum;
  const int64_t last_row = end < args.batch.num_rows ? end : args.batch.num_rows;
  const T* const weights = static_cast<const T*>(shape.convolution) + channel * shape.kernel_size;
  for (int64_t row = first_row; row < last_row; ++row) {
    const DeltaSequence sequence(args.batch, args.batch.row_sequence[row]);
    const int64_t later = sequence.first_row + sequence.num_rows - row;
    float sum = 0.0f;
    for (int back = 0; back < shape.kernel_size && back < later; ++back) {
      sum = fmaf(ToFloat(weights[shape.kernel_size - 1 - back]),
                 args.grad_sums[(row + back) * channels + channel], sum);
    }
    FromFloat(sum, (static_cast<T*>(args.grad_projected) + row * ProjectedSize(shape))[channel]);
  }
  float* const sums = args.weight_sums + (blockIdx.x * channels + channel) * shape.kernel_size;
  for (int back = 0; back < shape.kernel_size; ++back) {
    float sum = 0.0f;
    for (int64_t row = first_row; row < last_row; ++row) {
      const DeltaSequence sequence(args.batch, args.batch.row_sequence[row]);
      if (row - back < sequence.first_row) continue;
      sum = fmaf(ToFloat(ProjectedRow<T>(shape, row - back)[channel]),
                 args.grad_sums[row * channels + channel], sum);
    }
    sums[shape.kernel_size - 1 - back] = sum;
  }
}

}  // namespace

cudaError_t Launch(const DeltaConvolveBackward& args, cudaStream_t stream) {
  if (!DeltaFits(args.shape)) return cudaErrorInvalidValue;
  if (args.batch.num_rows == 0) return cudaSuccess;
  const unsigned blocks = DeltaBlocks(args.batch.num_rows *
                                      (2 * args.shape.num_key_heads + args.shape.num_value_heads));
  constexpr int kThreads = kDeltaWarps * kWarp;
  if (args.shape.type == Element::kFloat32) {
    TANDEM_LAUNCH(ConvolveBackwardKernel<float>, blocks, kThreads, 0, stream, args);
  } else {
    TANDEM_LAUNCH(ConvolveBackwardKernel<__nv_bfloat16>, blocks, kThreads, 0, stream, args);
  }
  return cudaGetLastError();
}

int64_t WeightBlocks(const DeltaWeightsBackward& args) {
  return (args.batch.num_rows + kRowsOfWeightSum - 1) / kRowsOfWeightSum;
}

cudaError_t Launch(const DeltaWeightsBackward& args, cudaStream_t stream) {
  if (!DeltaFits(args.shape)) return cudaErrorInvalidValue;
  if (args.batch.num_rows == 0) return cudaSuccess;
  const dim3 grid(
      static_cast<unsigned>(WeightBlocks(args)),
      static_cast<unsigned>((args.shape.channels() + kWeightThreads - 1) / kWeightThreads));
  if (args.shape.type == Element::kFloat32) {
    TANDEM_LAUNCH(WeightsBackwardKernel<float>, grid, kWeightThreads, 0, stream, args);
  } else {
    TANDEM_LAUNCH(WeightsBackwardKernel<__nv_bfloat16>, grid, kWeightThreads, 0, stream, args);
  }
  return cudaGetLastError();
}

}  // namespace tandem::model::cuda
