// A block's columns of one head's state, or of its gradient, spread over the lanes' registers:
//
//             column 0 .. 7 of a warp
//   rows  0.. 3   lanes  0 ..  7     row 16 j + 4 p + i of a column is element 4 j + i of the lane
//   rows  4.. 7   lanes  8 .. 15     8 p + column: of a key four elements are loaded at once, and the
//   rows  8..11   lanes 16 .. 23     four parts of a column lie in different banks. A sum over rows is
//   rows 12..15   lanes 24 .. 31     one over a lane's elements, four chains, and two exchanges.
//   rows 16..19   lanes  0 ..  7
//     ..
#ifndef TANDEM_COMMON_MODEL_KERNELS_CUDA_DELTA_RECURRENCE_CUH_
#define TANDEM_COMMON_MODEL_KERNELS_CUDA_DELTA_RECURRENCE_CUH_

#include "common/model/kernels/cuda/delta_rule.cuh"

namespace tandem::model::cuda {

constexpr int kColumnsOfWarp = 8;
constexpr int kPartsOfColumn = kWarp / kColumnsOfWarp;
constexpr int kRecurrenceThreads = kDeltaColumns / kColumnsOfWarp * kWarp;
// Floats of keys, or of queries, that are in shared memory at once: 16 KiB.
constexpr int kSharedKeys = 4096;
using Quad = Pack<float, 4>;

// Tokens whose keys and values are in shared memory at once; divides kDeltaChunk.
template <int kElements>
constexpr int kTokensAtOnce = kPartsOfColumn* kElements < kSharedKeys / 32
                                  ? 32
                                  : kSharedKeys / (kPartsOfColumn * kElements);

// kElements: rows of a column that a lane holds.
template <int kElements>
struct LaneColumn {
  static constexpr int kQuads = kElements / 4;
  float at[kElements];

  __device__ static int RowOf(int part, int element) {
    return element / 4 * 4 * kPartsOfColumn + 4 * part + element % 4;
  }

  __device__ void Clear() {
#pragma unroll
    for (int i = 0; i < kElements; ++i) at[i] = 0.0f;
  }

  // The sum over all rows of the column times `row`, a token's key or query; all parts get it.
  // row: [kQuads * kPartsOfColumn].
  __device__ float Times(const Quad* row, int part) const {
    float sums[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
    for (int j = 0; j < kQuads; ++j) {
      const Quad quad = row[j * kPartsOfColumn + part];
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[i] = fmaf(quad.at[i], at[4 * j + i], sums[i]);
    }
    return SumOfParts((sums[0] + sums[1]) + (sums[2] + sums[3]));
  }

  // Column = decay column + row factor.
  __device__ void Add(const Quad* row, int part, float factor, float decay) {
#pragma unroll
    for (int j = 0; j < kQuads; ++j) {
      const Quad quad = row[j * kPartsOfColumn + part];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        at[4 * j + i] = fmaf(quad.at[i], factor, decay * at[4 * j + i]);
      }
    }
  }

  // Both lanes of a pair add the same two numbers, so all parts have the same bits.
  __device__ static float SumOfParts(float x) {
    for (int step = kColumnsOfWarp; step < kWarp; step *= 2) {
      x += __shfl_xor_sync(kAllLanes, x, step);
    }
    return x;
  }
};

// The column that a thread has a part of. A block has kDeltaColumns of one head of a sequence; blocks lie
// [sequences, heads], and columns in y.
struct DeltaColumn {
  int of_sequence;  // the head, counted from the first of the launch
  int head;
  int key_head;
  int first_column;  // of the block
  int part;
  int of_block;  // the column, counted from first_column
  int column;
  bool is_column;  // otherwise it is beyond the head
};
__device__ inline DeltaColumn ColumnOfThread(const DeltaShape& shape, int first_head,
                                             int num_heads) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  DeltaColumn at;
  at.of_sequence = static_cast<int>(blockIdx.x % num_heads);
  at.head = first_head + at.of_sequence;
  at.key_head = at.head / shape.group();
  at.first_column = static_cast<int>(blockIdx.y) * kDeltaColumns;
  at.part = lane / kColumnsOfWarp;
  at.of_block = static_cast<int>(threadIdx.x) / kWarp * kColumnsOfWarp + lane % kColumnsOfWarp;
  at.column = at.first_column + at.of_block;
  at.is_column = at.column < shape.value_dim;
  return at;
}

// Copies keys or queries of `count` tokens of a head into shared memory, zeros beyond key_dim.
template <int kElements>
__device__ void LoadKeys(const float* from, int64_t token_stride, int key_dim, int count,
                         Quad* shared) {
  constexpr int kDim = kPartsOfColumn * kElements;
  for (int i = threadIdx.x; i < count * kDim; i += kRecurrenceThreads) {
    const int r = i % kDim;
    shared[i / 4].at[i % 4] = r < key_dim ? from[i / kDim * token_stride + r] : 0.0f;
  }
}

// Likewise the block's columns of values; zeros beyond value_dim.
__device__ inline void LoadValues(const float* from, int64_t token_stride, int columns, int count,
                                  float* shared) {
  for (int i = threadIdx.x; i < count * kDeltaColumns; i += kRecurrenceThreads) {
    const int c = i % kDeltaColumns;
    shared[i] = c < columns ? from[i / kDeltaColumns * token_stride + c] : 0.0f;
  }
}

// Calls `launch` with the elements of a lane that key_dim needs, as a type.
template <int kElements>
struct ElementsOfLane {
  static constexpr int value = kElements;
};
template <typename Launch>
void WithElementsOfLane(int key_dim, const Launch& launch) {
  if (key_dim <= 32) {
    launch(ElementsOfLane<8>());
  } else if (key_dim <= 64) {
    launch(ElementsOfLane<16>());
  } else if (key_dim <= 128) {
    launch(ElementsOfLane<32>());
  } else {
    launch(ElementsOfLane<64>());
  }
}

}  // namespace tandem::model::cuda

#endif  // TANDEM_COMMON_MODEL_KERNELS_CUDA_DELTA_RECURRENCE_CUH_
