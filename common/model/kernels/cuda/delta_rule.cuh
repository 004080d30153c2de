// What the kernels of the gated delta rule (delta_rule.h) share: where rows, states and columns lie, and
// the convolution.
#ifndef TANDEM_COMMON_MODEL_KERNELS_CUDA_DELTA_RULE_CUH_
#define TANDEM_COMMON_MODEL_KERNELS_CUDA_DELTA_RULE_CUH_

#include "common/model/kernels/cuda/delta_rule.h"
#include "common/model/kernels/cuda/device_math.cuh"

namespace tandem::model::cuda {

// Elements of a head that a lane holds: lane, lane + 32, ..
constexpr int kDeltaOfLane = kMaxDeltaDim / kWarp;
constexpr int kDeltaWarps = 4;  // of a block whose warps have a head of a row each

// One sequence of a batch.
struct DeltaSequence {
  int first_row;
  int num_rows;
  int first_place;
  int state;    // negative: none
  bool begins;  // no token came before: state and tail are not read

  __device__ DeltaSequence(const DeltaBatch& batch, int sequence)
      : first_row(batch.row_starts[sequence]),
        num_rows(batch.row_starts[sequence + 1] - first_row),
        first_place(batch.place_starts == nullptr ? first_row : batch.place_starts[sequence]),
        state(batch.states == nullptr ? -1 : batch.states[sequence]),
        begins(state < 0 || batch.row_position[first_row] == 0) {}
};

// First columns of a head in the projection.
__device__ inline int64_t KeyColumn(const DeltaShape& shape, int key_head) {
  return shape.key_size() + int64_t{key_head} * shape.key_dim;
}
__device__ inline int64_t ValueColumn(const DeltaShape& shape, int value_head) {
  return 2 * shape.key_size() + int64_t{value_head} * shape.value_dim;
}
__device__ inline int64_t GateColumn(const DeltaShape& shape, int value_head) {
  return shape.channels() + int64_t{value_head} * shape.value_dim;
}
__device__ inline int64_t BetaColumn(const DeltaShape& shape, int value_head) {
  return shape.channels() + shape.value_size() + value_head;
}
__device__ inline int64_t DecayColumn(const DeltaShape& shape, int value_head) {
  return BetaColumn(shape, value_head) + shape.num_value_heads;
}
// Elements of a contiguous row of the projection.
__device__ inline int64_t ProjectedSize(const DeltaShape& shape) {
  return shape.channels() + shape.value_size() + 2 * shape.num_value_heads;
}

// x sigmoid(x), and its slope.
struct SiluAndSlope {
  float value;
  float slope;
  __device__ explicit SiluAndSlope(float x) {
    const float sigmoid = Sigmoid(x);
    value = x * sigmoid;
    slope = x * sigmoid * (1.0f - sigmoid) + sigmoid;
  }
};

template <typename T>
__device__ const T* ProjectedRow(const DeltaShape& shape, int64_t row) {
  return static_cast<const T*>(shape.projected) + row * shape.row_stride;
}

template <typename T>
__device__ T* TailOf(const DeltaBatch& batch, int state) {
  return reinterpret_cast<T*>(static_cast<char*>(batch.tail) + state * batch.state_stride);
}

// The convolution's input of row t, which may be one of the kernel_size - 1 before the first; zero: there
// was no such token.
template <typename T>
__device__ T ConvolutionInput(const DeltaShape& shape, const DeltaBatch& batch,
                              const DeltaSequence& sequence, int t, int64_t channel) {
  if (t >= 0) return ProjectedRow<T>(shape, sequence.first_row + t)[channel];
  if (sequence.begins) {
    T zero;
    FromFloat(0.0f, zero);
    return zero;
  }
  return TailOf<T>(batch, sequence.state)[(shape.kernel_size - 1 + t) * shape.channels() + channel];
}

// The sum over tokens of weight times input, for row t; this token's first.
template <typename T>
__device__ float Convolved(const DeltaShape& shape, const DeltaBatch& batch,
                           const DeltaSequence& sequence, int t, int64_t channel) {
  const T* const weights = static_cast<const T*>(shape.convolution) + channel * shape.kernel_size;
  float sum = 0.0f;
  for (int back = 0; back < shape.kernel_size; ++back) {
    const T input = ConvolutionInput<T>(shape, batch, sequence, t - back, channel);
    sum = fmaf(ToFloat(input), ToFloat(weights[shape.kernel_size - 1 - back]), sum);
  }
  return sum;
}

// log(1 + exp(x)), which is its argument where that is large.
__device__ inline float DeltaSoftplus(float x) { return x > 20.0f ? x : log1pf(expf(x)); }

// A warp's head of a row, counted through those of q, k and v.
struct DeltaHead {
  int key_head;    // negative: of v
  int value_head;  // negative: of q or k
  bool is_query;
  int dim;
  int64_t channel;  // the first one

  __device__ DeltaHead(const DeltaShape& shape, int index) {
    is_query = index < shape.num_key_heads;
    if (index < 2 * shape.num_key_heads) {
      key_head = is_query ? index : index - shape.num_key_heads;
      value_head = -1;
      dim = shape.key_dim;
      channel = is_query ? int64_t{key_head} * shape.key_dim : KeyColumn(shape, key_head);
    } else {
      key_head = -1;
      value_head = index - 2 * shape.num_key_heads;
      dim = shape.value_dim;
      channel = ValueColumn(shape, value_head);
    }
  }
};

// Blocks of kDeltaWarps warps for so many warps' items.
inline unsigned DeltaBlocks(int64_t items) {
  return static_cast<unsigned>((items + kDeltaWarps - 1) / kDeltaWarps);
}

inline bool DeltaFits(const DeltaShape& shape) {
  return shape.key_dim >= 1 && shape.key_dim <= kMaxDeltaDim && shape.value_dim >= 1 &&
         shape.value_dim <= kMaxDeltaDim && shape.num_key_heads >= 1 &&
         shape.num_value_heads % shape.num_key_heads == 0 && shape.kernel_size >= 1;
}

}  // namespace tandem::model::cuda

#endif  // TANDEM_COMMON_MODEL_KERNELS_CUDA_DELTA_RULE_CUH_
