#include "common/device/launch.cuh"
#include "common/model/kernels/cuda/delta_rule.cuh"

namespace tandem::model::cuda {
namespace {

// beta and decay of a row's value heads, by one warp.
template <typename T>
__device__ void MakeGates(const DeltaConvolve& args, int64_t row, int64_t place, int lane) {
  const DeltaShape& shape = args.shape;
  const T* const projected = ProjectedRow<T>(shape, row);
  for (int head = lane; head < shape.num_value_heads; head += kWarp) {
    const float rate = expf(ToFloat(static_cast<const T*>(shape.a_log)[head]));
    const float bias = ToFloat(static_cast<const T*>(shape.dt_bias)[head]);
    const float a = ToFloat(projected[DecayColumn(shape, head)]);
    const int64_t at = place * shape.num_value_heads + head;
    args.inputs.beta[at] = Sigmoid(ToFloat(projected[BetaColumn(shape, head)]));
    args.inputs.decay[at] = expf(-rate * DeltaSoftplus(a + bias));
  }
}

// A warp has a head of a row; the last one of a row its gates.
template <typename T>
__global__ void __launch_bounds__(kDeltaWarps* kWarp) ConvolveKernel(const DeltaConvolve args) {
  tandem::device::AwaitPredecessor();
  const DeltaShape& shape = args.shape;
  const int heads = 2 * shape.num_key_heads + shape.num_value_heads;
  const int64_t item = static_cast<int64_t>(blockIdx.x) * kDeltaWarps + threadIdx.x / kWarp;
  const int64_t row = item / (heads + 1);
  if (row >= args.batch.num_rows) return;  // the whole warp
  const int index = static_cast<int>(item % (heads + 1));
  const int lane = threadIdx.x % kWarp;
  const DeltaSequence sequence(args.batch, args.batch.row_sequence[row]);
  const int t = static_cast<int>(row - sequence.first_row);
  const int64_t place = int64_t{sequence.first_place} + t;
  if (index == heads) {
    MakeGates<T>(args, row, place, lane);
    return;
  }
  const DeltaHead head(shape, index);
  float x[kDeltaOfLane];
  float squares = 0.0f;
#pragma unroll
  for (int i = 0; i < kDeltaOfLane; ++i) {
    const int d = lane + i * kWarp;
    x[i] = 0.0f;
    if (d >= head.dim) continue;
    const float sum = Convolved<T>(shape, args.batch, sequence, t, head.channel + d);
    x[i] = sum * Sigmoid(sum);
    squares = fmaf(x[i], x[i], squares);
  }
  float* to = args.inputs.v + (place * shape.num_value_heads + head.value_head) * shape.value_dim;
  float inverse = 1.0f;
  float scale = 1.0f;
  if (head.key_head >= 0) {
    to = (head.is_query ? args.inputs.q : args.inputs.k) +
         (place * shape.num_key_heads + head.key_head) * shape.key_dim;
    inverse = 1.0f / sqrtf(WarpSum(squares) + kDeltaKeyEps);
    if (head.is_query) scale = 1.0f / sqrtf(static_cast<float>(shape.key_dim));
  }
#pragma unroll
  for (int i = 0; i < kDeltaOfLane; ++i) {
    const int d = lane + i * kWarp;
    if (d < head.dim) to[d] = x[i] * inverse * scale;
  }
}

}  // namespace

cudaError_t Launch(const DeltaConvolve& args, cudaStream_t stream) {
  if (!DeltaFits(args.shape)) return cudaErrorInvalidValue;
  if (args.batch.num_rows == 0) return cudaSuccess;
  const int64_t items =
      args.batch.num_rows * (2 * args.shape.num_key_heads + args.shape.num_value_heads + 1);
  if (args.shape.type == Element::kFloat32) {
    TANDEM_LAUNCH_EARLY(ConvolveKernel<float>, DeltaBlocks(items), kDeltaWarps * kWarp, 0, stream,
                        args);
  } else {
    TANDEM_LAUNCH_EARLY(ConvolveKernel<__nv_bfloat16>, DeltaBlocks(items), kDeltaWarps * kWarp, 0,
                        stream, args);
  }
  return cudaGetLastError();
}

}  // namespace tandem::model::cuda
