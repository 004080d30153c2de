// Attention over a cache of latents: one key-value head that all query heads share, whose value is the
// beginning of its key (absorbed_heads.h). Key and value are one array, and a decoding sequence has as
// many query rows as heads, so tensor cores multiply what a GPU's memory delivers about as fast.
//
// A block computes one piece of the plan: a tile of query rows against a chunk of keys, 32 at a time.
//
//                      head_dim (576)
//   queries   kRows [ ............... ]                     loaded once
//   keys         32 [ ............... ]  x 2                one set is computed, the next one copied
//                     values (512) |
//   scores          kRows x 32      a warp has a tile of 16 x 16, or a part of its sum over head_dim
//   weights         kRows x 32      their exponentials, in bfloat16
//   sums            kRows x values  in registers: a warp has all rows of kTiles x 16 columns
//
// Between two barriers every warp reads the keys as rows once, for its scores, and its own columns of
// them once, for its sums: each key is read from the cache once for all rows of the tile.
#include <cuda_bf16.h>

#include "common/device/launch.cuh"
#include "common/model/kernels/cuda/async_copy.cuh"
#include "common/model/kernels/cuda/device_math.cuh"
#include "common/model/kernels/cuda/mma_tile.cuh"
#include "common/model/kernels/cuda/paged_attention.h"

namespace tandem::model::cuda {
namespace {

using Value = __nv_bfloat16;
using ValuePack = Pack<Value, kPackOf<Value>>;

constexpr int kLatentWarps = 8;
constexpr int kLatentThreads = kLatentWarps * kWarp;
constexpr int kKeys = kWarp;  // of a step: a lane each in the softmax
constexpr int kPack = kPackOf<Value>;
constexpr int kTileElements = kMmaTile * kMmaTile;
// Rows are this much longer than what they hold, so that the same columns of eight rows lie in
// different banks.
constexpr int kRowPadding = kPack;
constexpr int kWeightStride = kKeys + kRowPadding;
constexpr float kLog2e = 1.44269504088896341f;
constexpr int kMergeGroups = 8;
constexpr int kMergeThreads = kMaxPlainHeadDim / kPack;  // of a group

struct alignas(16) SharedBytes {
  unsigned char at[16];
};

__host__ __device__ constexpr int RowStride(int head_dim) {
  return (head_dim + kMmaTile - 1) / kMmaTile * kMmaTile + kRowPadding;
}

__device__ inline int Least(int a, int b) { return a < b ? a : b; }

__device__ inline ValuePack ZeroPack() {
  ValuePack pack;
  for (Value& value : pack.at) FromFloat(0.0f, value);
  return pack;
}

// A warp makes a row of zeros, or copies it to shared memory.
__device__ inline void CopyRow(Value* to, const Value* from, int head_dim) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  for (int i = lane * kPack; i < head_dim; i += kWarp * kPack) {
    if (from != nullptr) {
      CopyAsync(to + i, from + i);
    } else {
      *reinterpret_cast<ValuePack*>(to + i) = ZeroPack();
    }
  }
}

template <int kRows, int kTiles>
__global__ void __launch_bounds__(kLatentThreads, kRows == 16 ? 2 : 1)
    LatentKernel(const PagedAttention args) {
  constexpr int kRowTiles = kRows / kMmaTile;
  constexpr int kScoreTiles = kRowTiles * (kKeys / kMmaTile);
  constexpr int kSplits = kLatentWarps / kScoreTiles;  // of the sum over head_dim
  constexpr int kRowsOfWarp = kRows / kLatentWarps;    // in the softmax
  constexpr int kKeysOfWarp = kKeys / kLatentWarps;    // that it copies
  static_assert(kSplits >= 1 && kScoreTiles * kSplits == kLatentWarps);
  TANDEM_DYNAMIC_SHARED(SharedBytes, memory);

  const int64_t piece = blockIdx.x;
  if (args.batch.piece_is_real[piece] == 0) return;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int head_dim = args.head_dim;
  const int stride = RowStride(head_dim);
  Value* const queries = reinterpret_cast<Value*>(memory);
  Value* const keys = queries + kRows * stride;
  Value* const weights = keys + 2 * kKeys * stride;
  float* const scores = reinterpret_cast<float*>(weights + kRows * kWeightStride);
  float* const factors = scores + kLatentWarps * kTileElements;

  const int sequence = args.batch.piece_sequence[piece];
  const int chunk = args.batch.piece_chunk[piece];
  const int first_row = args.batch.row_starts[sequence];
  const int num_rows = (args.batch.row_starts[sequence + 1] - first_row) * args.num_heads;
  const int first_of_tile = args.batch.piece_tile[piece] * kRows;
  const int last_of_tile = Least(first_of_tile + kRows, num_rows) - 1;
  const int last_position = args.batch.row_position[first_row + last_of_tile / args.num_heads];
  const int first_key = chunk * *args.batch.chunk_length;
  const int end_key = Least(first_key + *args.batch.chunk_length, last_position + 1);
  const int steps = end_key > first_key ? (end_key - first_key + kKeys - 1) / kKeys : 0;
  const int32_t* const pages = args.batch.pages + args.batch.page_starts[sequence];
  const int64_t block_stride =
      args.block_stride > 0 ? args.block_stride : int64_t{args.block_size} * head_dim;

  for (int r = warp; r < kRows; r += kLatentWarps) {
    const int row = first_of_tile + r;
    const Value* const from = row < num_rows
                                  ? static_cast<const Value*>(args.q) +
                                        (first_row + row / args.num_heads) * args.q_row_stride +
                                        row % args.num_heads * args.q_head_stride
                                  : nullptr;
    CopyRow(queries + r * stride, from, head_dim);
  }
  // Columns behind head_dim, up to a whole tile, are part of the sums.
  if (head_dim % kMmaTile != 0) {
    for (int r = static_cast<int>(threadIdx.x); r < kRows + 2 * kKeys; r += kLatentThreads) {
      *reinterpret_cast<ValuePack*>(queries + r * stride + head_dim) = ZeroPack();
    }
  }
  // The page of each key is looked up a step ahead, for its address waits for it.
  int page[kKeysOfWarp];
  const auto find_pages = [&](int step) {
    for (int i = 0; i < kKeysOfWarp; ++i) {
      const int key = first_key + step * kKeys + warp + i * kLatentWarps;
      if (key < end_key) page[i] = pages[key / args.block_size];
    }
  };
  const auto copy_keys = [&](int step) {
    for (int i = 0; i < kKeysOfWarp; ++i) {
      const int r = warp + i * kLatentWarps;
      const int key = first_key + step * kKeys + r;
      const Value* const from = key < end_key ? static_cast<const Value*>(args.keys) +
                                                    page[i] * block_stride +
                                                    int64_t{key % args.block_size} * head_dim
                                              : nullptr;
      // Keys behind the end have weight 0, which makes NaN of what lies there.
      CopyRow(keys + (step % 2 * kKeys + r) * stride, from, head_dim);
    }
  };

  int position[kRowsOfWarp];
  float most[kRowsOfWarp], sum[kRowsOfWarp];
  for (int i = 0; i < kRowsOfWarp; ++i) {
    const int row = first_of_tile + warp * kRowsOfWarp + i;
    position[i] = row < num_rows ? args.batch.row_position[first_row + row / args.num_heads] : -1;
    most[i] = -INFINITY;
    sum[i] = 0.0f;
  }
  MmaTile sums[kRowTiles][kTiles];
#pragma unroll
  for (int t = 0; t < kRowTiles; ++t) {
#pragma unroll
    for (int j = 0; j < kTiles; ++j) sums[t][j].Clear();
  }
  const int first_column = warp * kTiles * kMmaTile;
  const float scale = args.scale * kLog2e;  // exponentials are those of 2

  find_pages(0);
  copy_keys(0);
  find_pages(1);
  for (int step = 0; step < steps; ++step) {
    AwaitCopies();
    __syncthreads();  // the keys are there, and nobody reads those before them any more
    const Value* const here = keys + step % 2 * kKeys * stride;
    if (step + 1 < steps) copy_keys(step + 1);
    find_pages(step + 2);
    {
      const int tile = warp % kScoreTiles;
      const int split = warp / kScoreTiles;
      const int k_steps = (head_dim + kMmaTile - 1) / kMmaTile;
      const Value* const left = queries + tile / (kKeys / kMmaTile) * kMmaTile * stride;
      const Value* const right = here + tile % (kKeys / kMmaTile) * kMmaTile * stride;
      const auto multiply = [&](int k, MmaTile& sum) {
        sum.Multiply(LoadLeft(left + k * kMmaTile, stride),
                     LoadRightTransposed(right + k * kMmaTile, stride));
      };
      // Two sums: a product waits for the one before the last.
      MmaTile even, odd;
      even.Clear();
      odd.Clear();
      int k = k_steps * split / kSplits;
      const int end = k_steps * (split + 1) / kSplits;
#pragma unroll 2
      for (; k + 1 < end; k += 2) {
        multiply(k, even);
        multiply(k + 1, odd);
      }
      if (k < end) multiply(k, even);
      even.Add(odd);
      even.Store(scores + warp * kTileElements);
    }
    __syncthreads();
    const int key = first_key + step * kKeys + lane;
#pragma unroll
    for (int i = 0; i < kRowsOfWarp; ++i) {
      const int row = warp * kRowsOfWarp + i;
      const int tile = row / kMmaTile * (kKeys / kMmaTile) + lane / kMmaTile;
      const int element = row % kMmaTile * kMmaTile + lane % kMmaTile;
      float score = 0.0f;
      for (int split = 0; split < kSplits; ++split) {
        score += scores[(split * kScoreTiles + tile) * kTileElements + element];
      }
      score = key < end_key && key <= position[i] ? score * scale : -INFINITY;
      const float new_most = fmaxf(most[i], WarpMax(score));
      const bool sees = new_most > -INFINITY;  // a key so far
      const float weight = sees ? exp2f(score - new_most) : 0.0f;
      const float shrunk = sees ? exp2f(most[i] - new_most) : 1.0f;
      sum[i] = sum[i] * shrunk + WarpSum(weight);
      most[i] = new_most;
      FromFloat(weight, weights[row * kWeightStride + lane]);
      if (lane == 0) factors[row] = shrunk;
    }
    __syncthreads();
    if (first_column < args.v_head_dim) {
#pragma unroll
      for (int t = 0; t < kRowTiles; ++t) {
#pragma unroll
        for (int j = 0; j < kTiles; ++j) sums[t][j].ScaleRows(factors + t * kMmaTile);
      }
#pragma unroll
      for (int k = 0; k < kKeys; k += kMmaTile) {
        MmaParts left[kRowTiles];
#pragma unroll
        for (int t = 0; t < kRowTiles; ++t) {
          left[t] = LoadLeft(weights + t * kMmaTile * kWeightStride + k, kWeightStride);
        }
#pragma unroll
        for (int j = 0; j < kTiles; ++j) {
          const int column = first_column + j * kMmaTile;
          if (column >= args.v_head_dim) break;
          const MmaParts right = LoadRight(here + k * stride + column, stride);
#pragma unroll
          for (int t = 0; t < kRowTiles; ++t) sums[t][j].Multiply(left[t], right);
        }
      }
    }
  }
  AwaitCopies();    // of a piece without steps
  __syncthreads();  // factors and scores are free

  // Rows of a sequence with one chunk are done; the others' results are merged.
  const int first_partial = args.batch.merge_starts[first_row];
  const int chunks = args.batch.split ? args.batch.merge_starts[first_row + 1] - first_partial : 1;
  const auto partial_of = [&](int row) {
    return first_partial + int64_t{row / args.num_heads} * chunks + chunk;
  };
  for (int i = 0; i < kRowsOfWarp; ++i) {
    const int of_tile = warp * kRowsOfWarp + i;
    const int row = first_of_tile + of_tile;
    if (lane == 0) factors[of_tile] = sum[i] > 0.0f ? 1.0f / sum[i] : 0.0f;
    if (chunks > 1 && row < num_rows && lane == 0) {
      args.partial_log_sum_exp[partial_of(row) * args.num_heads + row % args.num_heads] =
          most[i] + log2f(sum[i]);
    }
  }
  __syncthreads();
  float* const mine = scores + warp * kTileElements;
#pragma unroll
  for (int t = 0; t < kRowTiles; ++t) {
#pragma unroll
    for (int j = 0; j < kTiles; ++j) {
      const int first = first_column + j * kMmaTile;
      if (first >= args.v_head_dim) break;
      sums[t][j].ScaleRows(factors + t * kMmaTile);
      sums[t][j].Store(mine);
      __syncwarp();
      // A lane writes half a row.
      const int of_tile = lane / 2;
      const int row = first_of_tile + t * kMmaTile + of_tile;
      const int column = first + lane % 2 * kPack;
      if (row < num_rows && column < args.v_head_dim) {
        ValuePack pack;
        for (int i = 0; i < kPack; ++i) {
          FromFloat(mine[of_tile * kMmaTile + lane % 2 * kPack + i], pack.at[i]);
        }
        void* const to = chunks > 1 ? args.partial_out : args.out;
        const int64_t to_row =
            chunks > 1 ? partial_of(row) : int64_t{first_row} + row / args.num_heads;
        *reinterpret_cast<ValuePack*>(
            static_cast<Value*>(to) +
            (to_row * args.num_heads + row % args.num_heads) * args.v_head_dim + column) = pack;
      }
      __syncwarp();
    }
  }
}

// A block for each head of each row: the mean of its partial results, weighted with what their keys
// have of the softmax. Groups of threads, which have all columns between them, take every eighth.
__global__ void __launch_bounds__(kMergeGroups* kMergeThreads)
    MergeKernel(const PagedAttention args) {
  constexpr int kThreads = kMergeGroups * kMergeThreads;
  __shared__ float scratch[kWarp];
  __shared__ float weights[kThreads];
  __shared__ float totals[kMergeGroups];
  __shared__ float of_groups[kMergeGroups][kMergeThreads * kPack];
  const int64_t row = blockIdx.x;
  const int64_t head = blockIdx.y;
  const int64_t first = args.batch.merge_starts[row];
  const int count = static_cast<int>(args.batch.merge_starts[row + 1] - first);
  if (count < 2) return;
  const int thread = static_cast<int>(threadIdx.x);
  const int group = thread / kMergeThreads;
  const int column = thread % kMergeThreads * kPack;
  const bool has_column = column < args.v_head_dim;
  const float* const log_sums = args.partial_log_sum_exp + first * args.num_heads + head;
  const Value* const partials = static_cast<const Value*>(args.partial_out) +
                                (first * args.num_heads + head) * args.v_head_dim + column;
  const int64_t stride = int64_t{args.num_heads} * args.v_head_dim;

  float most = -INFINITY;
  for (int i = thread; i < count; i += kThreads) {
    most = fmaxf(most, log_sums[int64_t{i} * args.num_heads]);
  }
  // The first chunk has a key that the row sees, so this is a number.
  most = BlockMax(most, scratch);
  float total = 0.0f;
  float sums[kPack] = {};
  for (int begin = 0; begin < count; begin += kThreads) {
    const int here = Least(kThreads, count - begin);
    __syncthreads();  // the weights before them are read
    if (thread < here) {
      weights[thread] = exp2f(log_sums[int64_t{begin + thread} * args.num_heads] - most);
    }
    __syncthreads();
#pragma unroll 4
    for (int i = group; i < here; i += kMergeGroups) {
      const float weight = weights[i];
      total += weight;
      if (!has_column) continue;
      const ValuePack pack = *reinterpret_cast<const ValuePack*>(partials + (begin + i) * stride);
      for (int j = 0; j < kPack; ++j) sums[j] += weight * ToFloat(pack.at[j]);
    }
  }
  for (int j = 0; j < kPack; ++j) of_groups[group][column + j] = sums[j];
  if (column == 0) totals[group] = total;
  __syncthreads();
  if (group > 0 || !has_column) return;
  for (int g = 1; g < kMergeGroups; ++g) {
    total += totals[g];
    for (int j = 0; j < kPack; ++j) sums[j] += of_groups[g][column + j];
  }
  ValuePack merged;
  for (int j = 0; j < kPack; ++j) FromFloat(sums[j] / total, merged.at[j]);
  *reinterpret_cast<ValuePack*>(static_cast<Value*>(args.out) +
                                (row * args.num_heads + head) * args.v_head_dim + column) = merged;
}

template <int kRows, int kTiles>
cudaError_t LaunchTiles(const PagedAttention& args, cudaStream_t stream) {
  const auto bytes = static_cast<int>(LatentSharedBytes(kRows, args.head_dim));
  auto* const kernel = &LatentKernel<kRows, kTiles>;
  const cudaError_t allowed =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  if (allowed != cudaSuccess) return allowed;
  TANDEM_LAUNCH(kernel, static_cast<unsigned>(args.batch.num_pieces), kLatentThreads, bytes, stream,
                args);
  return cudaGetLastError();
}

template <int kRows>
cudaError_t LaunchRows(const PagedAttention& args, cudaStream_t stream) {
  constexpr int kColumns = kLatentWarps * kMmaTile;  // that warps with one tile have
  if (args.v_head_dim <= kColumns) return LaunchTiles<kRows, 1>(args, stream);
  if (args.v_head_dim <= 2 * kColumns) return LaunchTiles<kRows, 2>(args, stream);
  return LaunchTiles<kRows, 4>(args, stream);
}

}  // namespace

bool LatentsTake(Element type, int head_dim, int v_head_dim) {
  return type == Element::kBFloat16 && head_dim % kPack == 0 && v_head_dim % kPack == 0 &&
         v_head_dim <= head_dim && head_dim <= kMaxSharedHeadDim && v_head_dim <= kMaxPlainHeadDim;
}

int64_t LatentSharedBytes(int64_t tile_rows, int head_dim) {
  const int64_t values =
      (tile_rows + 2 * kKeys) * RowStride(head_dim) + tile_rows * int64_t{kWeightStride};
  const int64_t floats = kLatentWarps * int64_t{kTileElements} + tile_rows;
  return values * static_cast<int64_t>(sizeof(Value)) +
         floats * static_cast<int64_t>(sizeof(float));
}

cudaError_t LaunchLatents(const PagedAttention& args, cudaStream_t stream) {
  if (args.batch.num_pieces == 0) return cudaSuccess;
  cudaError_t launched = cudaErrorInvalidValue;
  if (args.batch.tile_rows == 16) launched = LaunchRows<16>(args, stream);
  if (args.batch.tile_rows == 32) launched = LaunchRows<32>(args, stream);
  if (args.batch.tile_rows == 64) launched = LaunchRows<64>(args, stream);
  if (launched != cudaSuccess || !args.batch.split) return launched;
  const dim3 grid(static_cast<unsigned>(args.batch.num_rows),
                  static_cast<unsigned>(args.num_heads));
  TANDEM_LAUNCH(MergeKernel, grid, kMergeGroups * kMergeThreads, 0, stream, args);
  return cudaGetLastError();
}

}  // namespace tandem::model::cuda
