#include <algorithm>

#include "common/device/launch.cuh"
#include "common/model/kernels/cuda/device_math.cuh"
#include "common/model/kernels/cuda/row_product.h"
#include "common/model/kernels/cuda/warp_tile.cuh"

namespace tandem::model::cuda {
namespace {

constexpr int kTile = 64;   // rows and columns of a block's part of the result
constexpr int kStep = 32;   // of k, between two barriers
constexpr int kPart = 512;  // of k: summed from zero, then added to the earlier parts
constexpr int kThreads = 128;
constexpr int64_t kEnoughBlocks = 128;  // to fill a device
// Limit of gridDim.x. So many tiles have 8.8e12 elements, more than a device's memory.
constexpr int64_t kMostBlocks = 0x7FFFFFFF;
constexpr int kWarps = kThreads / kWarp;
constexpr int kStepsOfPart = kPart / kStep;
// Elements of an operand that a thread loads per step.
constexpr int kOfThread = kTile * kStep / kThreads;

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }
int64_t PartsOf(int64_t in) { return std::max<int64_t>(1, CeilDiv(in, kPart)); }
// Tiles from top to bottom; with groups as many as there may be, each of which ends with a tile of its
// own.
int64_t RowTilesOf(const RowProduct& args) {
  if (args.first == nullptr) return CeilDiv(args.rows, kTile);
  return args.rows / kTile + std::min(args.groups, args.rows);
}
int64_t ColumnTilesOf(const RowProduct& args) { return CeilDiv(args.out_size, kTile); }

// The accumulators of a block's threads. Operands of a step are [kTile, kStride] in shared memory.
template <typename T>
class TileSums;

// Four warps own a quarter each, as two by two tiles of tensor cores.
template <>
class TileSums<__nv_bfloat16> {
 public:
  // A multiple of 8, which load_matrix_sync requires.
  static constexpr int kStride = kStep + 8;  // so that rows start in different banks

  __device__ void Clear() {
    for (auto& row : tiles_) {
      for (WarpTile& tile : row) tile.Clear();
    }
  }
  __device__ void Multiply(const __nv_bfloat16* a, const __nv_bfloat16* b) {
    for (int k = 0; k < kStep; k += kWarpTile) {
      for (int i = 0; i < 2; ++i) {
        for (int j = 0; j < 2; ++j) {
          tiles_[i][j].Multiply(a + Row(i) * kStride + k, b + Column(j) * kStride + k, kStride);
        }
      }
    }
  }
  __device__ void Add(const TileSums& other) {
    for (int i = 0; i < 2; ++i) {
      for (int j = 0; j < 2; ++j) tiles_[i][j].Add(other.tiles_[i][j]);
    }
  }
  // Calls put(row, column, sum) for each element, from some thread.
  template <typename Put>
  __device__ void ForEach(const Put& put) const {
    __shared__ __align__(32) float staged[kWarps][kWarpTile * kWarpTile];
    float* const own = staged[Warp()];
    for (int i = 0; i < 2; ++i) {
      for (int j = 0; j < 2; ++j) {
        // Which lane holds which element of a fragment is not specified, so they pass through
        // memory. The barriers: all lanes have stored before one reads, and have read before the
        // next tile.
        tiles_[i][j].Store(own);
        __syncwarp();
        for (int e = static_cast<int>(threadIdx.x) % kWarp; e < kWarpTile * kWarpTile; e += kWarp) {
          put(Row(i) + e / kWarpTile, Column(j) + e % kWarpTile, own[e]);
        }
        __syncwarp();
      }
    }
  }

 private:
  __device__ static int Warp() { return static_cast<int>(threadIdx.x) / kWarp; }
  __device__ static int Row(int i) { return (Warp() / 2 * 2 + i) * kWarpTile; }
  __device__ static int Column(int j) { return (Warp() % 2 * 2 + j) * kWarpTile; }

  // Two by two, so that each operand's 16 by 16 elements are used twice.
  WarpTile tiles_[2][2];
};

// Thread t owns every eighth row from t / 16 on, and every sixteenth column from t % 16 on.
template <>
class TileSums<float> {
 public:
  // Odd, so that the sixteen columns that a warp reads at one k lie in different banks.
  static constexpr int kStride = kStep + 1;

  __device__ void Clear() {
    for (auto& row : sums_) {
      for (float& sum : row) sum = 0.0f;
    }
  }
  __device__ void Multiply(const float* a, const float* b) {
    for (int k = 0; k < kStep; ++k) {
      float column[kColumns];
      for (int j = 0; j < kColumns; ++j) column[j] = b[Column(j) * kStride + k];
      for (int i = 0; i < kRows; ++i) {
        const float row = a[Row(i) * kStride + k];
        for (int j = 0; j < kColumns; ++j) sums_[i][j] = fmaf(row, column[j], sums_[i][j]);
      }
    }
  }
  __device__ void Add(const TileSums& other) {
    for (int i = 0; i < kRows; ++i) {
      for (int j = 0; j < kColumns; ++j) sums_[i][j] += other.sums_[i][j];
    }
  }
  template <typename Put>
  __device__ void ForEach(const Put& put) const {
    for (int i = 0; i < kRows; ++i) {
      for (int j = 0; j < kColumns; ++j) put(Row(i), Column(j), sums_[i][j]);
    }
  }

 private:
  // A thread has 8 by 4 sums: twelve loads from shared memory feed 32 multiply-adds.
  static constexpr int kAcross = 16;  // threads side by side
  static constexpr int kDown = kThreads / kAcross;
  static constexpr int kRows = kTile / kDown;
  static constexpr int kColumns = kTile / kAcross;
  __device__ static int Row(int i) { return static_cast<int>(threadIdx.x) / kAcross + i * kDown; }
  __device__ static int Column(int j) {
    return static_cast<int>(threadIdx.x) % kAcross + j * kAcross;
  }

  float sums_[kRows][kColumns];
};

// One operand's data of a step on its way to shared memory, in a thread's registers. Loads N
// elements at once.
template <typename T, int N>
class Moved {
 public:
  // Loads rows from `first` on of [rows, in], elements of k from `begin` on; zeros beyond both.
  __device__ void Load(const T* matrix, int64_t rows, int64_t in, int64_t first, int64_t begin) {
    for (int p = 0; p < kPacks; ++p) {
      const int64_t row = first + RowOf(p);
      const int64_t k = begin + PlaceOf(p);
      if (row < rows && k < in) {
        packs_[p] = *reinterpret_cast<const Pack<T, N>*>(matrix + row * in + k);
      } else {
        for (int i = 0; i < N; ++i) FromFloat(0.0f, packs_[p].at[i]);
      }
    }
  }
  __device__ void Store(T* to) const {
    for (int p = 0; p < kPacks; ++p) {
      T* const place = to + RowOf(p) * TileSums<T>::kStride + PlaceOf(p);
      for (int i = 0; i < N; ++i) place[i] = packs_[p].at[i];
    }
  }

 private:
  static constexpr int kPacks = kOfThread / N;
  static constexpr int kOfRow = kStep / N;
  __device__ static int RowOf(int p) {
    return (static_cast<int>(threadIdx.x) + p * kThreads) / kOfRow;
  }
  __device__ static int PlaceOf(int p) {
    return (static_cast<int>(threadIdx.x) + p * kThreads) % kOfRow * N;
  }

  Pack<T, N> packs_[kPacks];
};

template <typename T>
__device__ float BiasOf(const RowProduct& args, int64_t group, int64_t column) {
  if (args.bias == nullptr) return 0.0f;
  return ToFloat(static_cast<const T*>(args.bias)[group * args.bias_stride + column]);
}

// The rows of a block: of one group.
struct BlockRows {
  int64_t group;
  int64_t begin;
  int64_t end;  // of the group, or of all rows
};

// Each warp finds them for itself. No rows: the tile is beyond those of all groups.
__device__ BlockRows RowsOfTile(const RowProduct& args, int64_t tile) {
  if (args.first == nullptr) return {0, tile * kTile, args.rows};
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  for (int64_t base = 0; base < args.groups; base += kWarp) {
    const int64_t group = base + lane;
    const bool is_group = group < args.groups;
    const int64_t begin = is_group ? args.first[group] : 0;
    const int64_t end = is_group ? args.first[group + 1] : 0;
    int64_t behind = (end - begin + kTile - 1) / kTile;  // tiles of these groups up to this one
    for (int step = 1; step < kWarp; step *= 2) {
      const int64_t before = __shfl_sync(kAllLanes, behind, lane >= step ? lane - step : lane);
      if (lane >= step) behind += before;
    }
    const unsigned later = __ballot_sync(kAllLanes, behind > tile);
    if (later == 0) {
      tile -= __shfl_sync(kAllLanes, behind, kWarp - 1);
      continue;
    }
    const int owner = __ffs(static_cast<int>(later)) - 1;
    const int64_t first_tile = owner == 0 ? 0 : __shfl_sync(kAllLanes, behind, owner - 1);
    const int64_t first_row = __shfl_sync(kAllLanes, begin, owner);
    return {base + owner, first_row + (tile - first_tile) * kTile,
            __shfl_sync(kAllLanes, end, owner)};
  }
  return {0, 0, 0};
}

// The group of a row that is in one, by bisection.
__device__ int64_t GroupOf(const RowProduct& args, int64_t row) {
  if (args.first == nullptr) return 0;
  int64_t begin = 0;
  int64_t end = args.groups;  // it is in [begin, end)
  while (end - begin > 1) {
    const int64_t middle = (begin + end) / 2;
    if (args.first[middle] <= row) {
      begin = middle;
    } else {
      end = middle;
    }
  }
  return begin;
}

// One block per tile of the result; if there is memory for partial sums, one per tile and part of
// k: the tiles of a row of tiles, then the next row, then the next part. All lie along x, because
// gridDim.y ends at 65,535, which are 4.19 million rows. Loads the next step while it computes the
// current one.
template <typename T, typename Out, int N>
__global__ void __launch_bounds__(kThreads)
    RowProductKernel(const RowProduct args, unsigned row_tiles, unsigned column_tiles) {
  using Sums = TileSums<T>;
  // Two buffers per operand, so that one barrier a step is enough. 20 KiB in bfloat16, 33 KiB in
  // float32: below the 48 KiB that a block may declare statically.
  __shared__ __align__(32) T left[2][kTile * Sums::kStride];
  __shared__ __align__(32) T right[2][kTile * Sums::kStride];
  const unsigned row_of_tiles = blockIdx.x / column_tiles;
  const int64_t first_column = static_cast<int64_t>(blockIdx.x % column_tiles) * kTile;
  const int64_t all_steps = (args.in + kStep - 1) / kStep;
  const bool is_part = args.partial != nullptr;
  const int64_t part = row_of_tiles / row_tiles;
  const BlockRows rows = RowsOfTile(args, row_of_tiles % row_tiles);
  if (rows.begin >= rows.end) return;
  const T* const matrix = static_cast<const T*>(args.weight) + rows.group * args.weight_stride;
  const int64_t begin = part * kStepsOfPart;
  const int64_t end =
      is_part && begin + kStepsOfPart < all_steps ? begin + kStepsOfPart : all_steps;

  Moved<T, N> x, weight;
  const auto load = [&](int64_t step) {
    x.Load(static_cast<const T*>(args.x), rows.end, args.in, rows.begin, step * kStep);
    weight.Load(matrix, args.out_size, args.in, first_column, step * kStep);
  };
  const auto store = [&](int64_t step) {
    x.Store(left[step % 2]);
    weight.Store(right[step % 2]);
  };
  Sums total, sums;
  total.Clear();
  sums.Clear();
  if (begin < end) {
    load(begin);
    store(begin);
  }
  for (int64_t step = begin; step < end; ++step) {
    __syncthreads();  // this step is stored, the previous one has been read
    if (step + 1 < end) load(step + 1);
    sums.Multiply(left[step % 2], right[step % 2]);
    if (step + 1 < end) store(step + 1);
    if (step + 1 == end || (step + 1) % kStepsOfPart == 0) {
      // The sums start from zero in each part, as they do in a block of its own, so it does not
      // show whether the parts were computed by one block or by many.
      total.Add(sums);
      sums.Clear();
    }
  }
  total.ForEach([&](int tile_row, int tile_column, float sum) {
    const int64_t row = rows.begin + tile_row;
    const int64_t column = first_column + tile_column;
    if (row >= rows.end || column >= args.out_size) return;
    if (is_part) {
      args.partial[(part * args.rows + row) * args.out_size + column] = sum;
    } else {
      FromFloat(sum + BiasOf<T>(args, rows.group, column),
                static_cast<Out*>(args.out)[row * args.out_size + column]);
    }
  });
}

// One thread per element of the result.
template <typename T, typename Out>
__global__ void __launch_bounds__(kThreads) AddPartsKernel(const RowProduct args) {
  const int64_t at = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const int64_t size = args.rows * args.out_size;
  if (at >= size) return;
  const int64_t parts = (args.in + kPart - 1) / kPart;
  float sum = 0.0f;
  // The order in which a single block adds its parts, from zero: the same bits.
  for (int64_t part = 0; part < parts; ++part) sum += args.partial[part * size + at];
  const int64_t row = at / args.out_size;
  if (args.first != nullptr && (row < args.first[0] || row >= args.first[args.groups])) return;
  FromFloat(sum + BiasOf<T>(args, GroupOf(args, row), at % args.out_size),
            static_cast<Out*>(args.out)[at]);
}

template <typename T, typename Out>
cudaError_t LaunchOf(RowProduct args, cudaStream_t stream) {
  constexpr int kPack = kPackOf<T>;
  const int64_t parts = PartialFloats(args) > 0 ? PartsOf(args.in) : 1;
  if (parts == 1) args.partial = nullptr;
  if (parts > 1 && args.partial == nullptr) return cudaErrorInvalidValue;
  const int64_t blocks = RowTilesOf(args) * ColumnTilesOf(args) * parts;
  if (blocks > kMostBlocks) return cudaErrorInvalidValue;
  const auto grid = static_cast<unsigned>(blocks);
  const auto row_tiles = static_cast<unsigned>(RowTilesOf(args));
  const auto column_tiles = static_cast<unsigned>(ColumnTilesOf(args));
  if (args.in % kPack == 0 && args.weight_stride % kPack == 0 && IsAligned(args.x) &&
      IsAligned(args.weight)) {
    TANDEM_LAUNCH((RowProductKernel<T, Out, kPack>), grid, kThreads, 0, stream, args, row_tiles,
                  column_tiles);
  } else {
    TANDEM_LAUNCH((RowProductKernel<T, Out, 1>), grid, kThreads, 0, stream, args, row_tiles,
                  column_tiles);
  }
  if (const cudaError_t error = cudaGetLastError(); error != cudaSuccess || parts == 1) {
    return error;
  }
  TANDEM_LAUNCH((AddPartsKernel<T, Out>),
                static_cast<unsigned>(CeilDiv(args.rows * args.out_size, kThreads)), kThreads, 0,
                stream, args);
  return cudaGetLastError();
}

}  // namespace

int64_t PartialFloats(const RowProduct& args) {
  const int64_t parts = PartsOf(args.in);
  const int64_t tiles = RowTilesOf(args) * ColumnTilesOf(args);
  return parts > 1 && tiles < kEnoughBlocks ? parts * args.rows * args.out_size : 0;
}

cudaError_t Launch(const RowProduct& args, cudaStream_t stream) {
  if (args.rows == 0 || args.out_size == 0) return cudaSuccess;
  if (args.type == Element::kFloat32) {
    if (args.out_type != Element::kFloat32) return cudaErrorInvalidValue;
    return LaunchOf<float, float>(args, stream);
  }
  return args.out_type == Element::kFloat32 ? LaunchOf<__nv_bfloat16, float>(args, stream)
                                            : LaunchOf<__nv_bfloat16, __nv_bfloat16>(args, stream);
}

}  // namespace tandem::model::cuda
