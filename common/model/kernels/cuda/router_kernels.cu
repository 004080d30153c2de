#include <algorithm>

#include "common/device/launch.cuh"
#include "common/model/kernels/cuda/device_math.cuh"
#include "common/model/kernels/cuda/router_kernels.h"

namespace tandem::model::cuda {
namespace {

using Score = RoutingSpec::Score;

// A warp routes a row; lane l has experts l, l + 32 and so on, in the order of which it adds up.
constexpr int kRowsOfBlock = 4;
constexpr int kThreads = kRowsOfBlock * kWarp;
constexpr int kOfLane = kMostExperts / kWarp;
constexpr int kGroupThreads = 256;
// Added to the sum of sigmoids, which could be 0.
constexpr float kLeastSum = 1e-20f;

__device__ float RankOf(float x) { return x != x ? -INFINITY : x; }
__device__ float PlainSigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

// An expert or a group, and its rank.
struct Ranked {
  float rank;
  int index;
};
constexpr int kNone = 1 << 30;

__device__ bool IsBefore(const Ranked& a, const Ranked& b) {
  return a.rank > b.rank || (a.rank == b.rank && a.index < b.index);
}
// Every lane gets the first of all lanes' by rank.
__device__ Ranked WarpFirst(Ranked mine) {
  for (int step = kWarp / 2; step > 0; step /= 2) {
    const Ranked other{__shfl_xor_sync(kAllLanes, mine.rank, step),
                       __shfl_xor_sync(kAllLanes, mine.index, step)};
    if (IsBefore(other, mine)) mine = other;
  }
  return mine;
}

// The softmax of a row: exp(logit - largest) / sum.
struct WarpSoftmax {
  float largest;
  float sum;
  __device__ float Share(float logit) const { return expf(logit - largest) / sum; }
};
__device__ WarpSoftmax SoftmaxOf(const float* logits, int num_experts) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  WarpSoftmax out{-INFINITY, 0.0f};
  for (int e = lane; e < num_experts; e += kWarp) out.largest = fmaxf(out.largest, logits[e]);
  out.largest = WarpMax(out.largest);
  for (int e = lane; e < num_experts; e += kWarp) out.sum += expf(logits[e] - out.largest);
  out.sum = WarpSum(out.sum);
  return out;
}

// What an expert is ranked by.
__device__ float RankOfExpert(const RoutedLogits& routed, const float* logits,
                              const WarpSoftmax& softmax, int e) {
  float rank = logits[e];
  if (routed.score == Score::kSigmoid) {
    rank = PlainSigmoid(rank);
  } else if (routed.score == Score::kSoftmax && routed.correction_bias != nullptr) {
    rank = softmax.Share(rank);
  }
  if (routed.correction_bias != nullptr) rank += routed.correction_bias[e];
  return RankOf(rank);
}

// Calls take(expert) for the `count` first by rank of those for which `is_open`; every lane, in the
// order of ranks. ranks: of the lane's experts.
template <typename IsOpen, typename Take>
__device__ void ForFirst(const float (&ranks)[kOfLane], int size, int count, const IsOpen& is_open,
                         const Take& take) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  unsigned taken = 0;  // of the lane's own
  for (int j = 0; j < count; ++j) {
    Ranked best{-INFINITY, kNone};
#pragma unroll
    for (int i = 0; i < kOfLane; ++i) {
      const int e = i * kWarp + lane;
      if (e >= size || (taken >> i & 1) != 0 || !is_open(e)) continue;
      const Ranked mine{ranks[i], e};
      if (best.index == kNone || IsBefore(mine, best)) best = mine;
    }
    best = WarpFirst(best);
    if (best.index % kWarp == lane) taken |= 1u << best.index / kWarp;
    take(best.index);
  }
}

// The rank of group `group`: of its ranks in shared memory, the largest or the sum of the two largest.
__device__ float RankOfGroup(const float* ranks, int size, RoutingSpec::GroupScore score) {
  float first = -INFINITY;
  float second = -INFINITY;
  for (int i = 0; i < size; ++i) {
    if (ranks[i] > first) {
      second = first;
      first = ranks[i];
    } else {
      second = fmaxf(second, ranks[i]);
    }
  }
  return score == RoutingSpec::GroupScore::kLargest || size == 1 ? first : first + second;
}

__global__ void __launch_bounds__(kThreads) ChooseKernel(const ChooseExperts args) {
  __shared__ float shared_ranks[kRowsOfBlock][kMostExperts];
  device::AwaitPredecessor();
  const RoutedLogits& routed = args.routed;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kRowsOfBlock + warp;
  if (row >= routed.rows) return;
  const int size = routed.num_experts;
  const float* const logits = routed.logits + row * size;
  WarpSoftmax softmax{0.0f, 1.0f};
  if (routed.score == Score::kSoftmax && routed.correction_bias != nullptr) {
    softmax = SoftmaxOf(logits, size);
  }
  float ranks[kOfLane];
#pragma unroll
  for (int i = 0; i < kOfLane; ++i) {
    const int e = i * kWarp + lane;
    ranks[i] = e < size ? RankOfExpert(routed, logits, softmax, e) : -INFINITY;
  }

  unsigned open_groups = kAllLanes;
  int of_group = size;
  if (args.top_groups < args.num_groups) {
    of_group = size / args.num_groups;
    float* const of_row = shared_ranks[warp];
    for (int i = 0; i < kOfLane; ++i) {
      if (i * kWarp + lane < size) of_row[i * kWarp + lane] = ranks[i];
    }
    __syncwarp();
    const bool has_group = lane < args.num_groups;
    const float rank =
        has_group ? RankOfGroup(of_row + lane * of_group, of_group, args.group_score) : -INFINITY;
    open_groups = 0;
    for (int j = 0; j < args.top_groups; ++j) {
      const bool is_open = !has_group || (open_groups >> lane & 1) != 0;
      const Ranked best = WarpFirst({is_open ? -INFINITY : RankOf(rank), is_open ? kNone : lane});
      open_groups |= 1u << best.index;
    }
  }

  // Lane j keeps the j-th choice; kMostChosen is the number of lanes.
  int mine = kNone;
  int num = 0;
  ForFirst(
      ranks, size, routed.top_k, [&](int e) { return (open_groups >> (e / of_group) & 1) != 0; },
      [&](int e) {
        if (num++ == lane) mine = e;
      });
  int place = 0;  // among the chosen ones, by number
  for (int j = 0; j < routed.top_k; ++j) {
    if (__shfl_sync(kAllLanes, mine, j) < mine) ++place;
  }
  if (lane < routed.top_k) args.experts[row * routed.top_k + place] = mine;
}

// SparseMixer's weights of the chosen experts, one choice after another. mine: the lane's expert.
__device__ float WeighBySparsemixer(const float* logits, int size, int top_k, float limit,
                                    int mine) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  unsigned taken = 0;  // of the lane's experts, e / 32
  unsigned done = 0;   // of the choices
  float weight = 0.0f;
  for (int j = 0; j < top_k; ++j) {
    const bool is_open = lane < top_k && (done >> lane & 1) == 0;
    const Ranked best =
        WarpFirst({is_open ? RankOf(logits[mine]) : -INFINITY, is_open ? lane : kNone});
    const int chosen = __shfl_sync(kAllLanes, mine, best.index);
    const float largest = logits[chosen];
    float sum = 0.0f;
    for (int e = lane; e < size; e += kWarp) {
      // 0 / 0 is near.
      const bool is_far = (largest - logits[e]) / fmaxf(fabsf(logits[e]), largest) > limit;
      if ((taken >> e / kWarp & 1) == 0 && !is_far) sum += expf(logits[e] - largest);
    }
    sum = WarpSum(sum);
    if (lane == best.index) weight = 1.0f / sum;
    if (chosen % kWarp == lane) taken |= 1u << chosen / kWarp;
    done |= 1u << best.index;
  }
  return weight;
}

__global__ void __launch_bounds__(kThreads) WeighKernel(const WeighExperts args) {
  device::AwaitPredecessor();
  const RoutedLogits& routed = args.routed;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kRowsOfBlock + warp;
  if (row >= routed.rows) return;
  const int size = routed.num_experts;
  const int top_k = routed.top_k;
  const float* const logits = routed.logits + row * size;
  bool is_damaged = false;
  for (int e = lane; e < size; e += kWarp) {
    is_damaged = is_damaged || logits[e] != logits[e] ||
                 (routed.correction_bias != nullptr &&
                  routed.correction_bias[e] != routed.correction_bias[e]);
  }
  if (__ballot_sync(kAllLanes, is_damaged) != 0) {
    if (lane < top_k) args.weights[row * top_k + lane] = NAN;
    return;
  }
  const int mine = lane < top_k ? static_cast<int>(args.experts[row * top_k + lane]) : 0;
  const bool is_chosen = lane < top_k;
  float weight = 0.0f;
  switch (routed.score) {
    case Score::kSoftmax: {
      WarpSoftmax softmax{0.0f, 1.0f};
      if (args.normalize) {
        softmax.largest = WarpMax(is_chosen ? logits[mine] : -INFINITY);
        softmax.sum = WarpSum(is_chosen ? expf(logits[mine] - softmax.largest) : 0.0f);
      } else {
        softmax = SoftmaxOf(logits, size);
      }
      weight = softmax.Share(logits[mine]);
      break;
    }
    case Score::kSigmoid:
    case Score::kSigmoidOfChosen:
      weight = PlainSigmoid(logits[mine]);
      if (args.normalize) weight /= WarpSum(is_chosen ? weight : 0.0f) + kLeastSum;
      break;
    case Score::kSparsemixer:
      weight = WeighBySparsemixer(logits, size, top_k, 2 * args.jitter, mine);
      break;
  }
  if (is_chosen) args.weights[row * top_k + lane] = weight * args.scale;
}

// One block per expert: counts the rows of the experts before it, then places its own, in the order
// of tokens.
__global__ void __launch_bounds__(kGroupThreads) GroupKernel(const GroupRows args) {
  __shared__ int64_t sums[kWarp];
  __shared__ int64_t of_warps[kGroupThreads / kWarp];
  device::AwaitPredecessor();
  const auto expert = static_cast<int64_t>(blockIdx.x);
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % kWarp;
  const int64_t count = args.tokens * args.top_k;
  int64_t before = 0;
  for (int64_t i = thread; i < count; i += kGroupThreads) before += args.experts[i] < expert;
  int64_t next = BlockCombine(before, sums, int64_t{0}, [](int64_t v) {
    for (int step = kWarp / 2; step > 0; step /= 2) v += __shfl_xor_sync(kAllLanes, v, step);
    return v;
  });
  if (thread == 0) {
    args.first[expert] = next;
    if (expert + 1 == args.num_experts) args.first[args.num_experts] = count;
  }
  for (int64_t begin = 0; begin < count; begin += kGroupThreads) {
    const int64_t i = begin + thread;
    const bool is_own = i < count && args.experts[i] == expert;
    const unsigned own = __ballot_sync(kAllLanes, is_own);
    __syncthreads();  // of_warps has been read
    if (lane == 0) of_warps[thread / kWarp] = __popc(own);
    __syncthreads();
    int64_t place = next;
    for (int w = 0; w < kGroupThreads / kWarp; ++w) {
      if (w < thread / kWarp) place += of_warps[w];
      next += of_warps[w];
    }
    if (!is_own) continue;
    place += __popc(own & ((1u << lane) - 1));
    args.places[i] = place;
    args.token_of_row[place] = i / args.top_k;
  }
}

bool Takes(const RoutedLogits& routed) {
  return routed.num_experts <= kMostExperts && routed.top_k <= kMostChosen &&
         routed.top_k <= routed.num_experts;
}

unsigned BlocksOf(int64_t rows) {
  return static_cast<unsigned>((rows + kRowsOfBlock - 1) / kRowsOfBlock);
}

}  // namespace

cudaError_t Launch(const ChooseExperts& args, cudaStream_t stream) {
  if (!Takes(args.routed) || args.num_groups > kMostGroups) return cudaErrorInvalidValue;
  if (args.routed.top_k > args.routed.num_experts / args.num_groups * args.top_groups) {
    return cudaErrorInvalidValue;
  }
  if (args.routed.rows == 0) return cudaSuccess;
  TANDEM_LAUNCH_EARLY(ChooseKernel, BlocksOf(args.routed.rows), kThreads, 0, stream, args);
  return cudaGetLastError();
}

cudaError_t Launch(const WeighExperts& args, cudaStream_t stream) {
  if (!Takes(args.routed)) return cudaErrorInvalidValue;
  if (args.routed.rows == 0) return cudaSuccess;
  TANDEM_LAUNCH_EARLY(WeighKernel, BlocksOf(args.routed.rows), kThreads, 0, stream, args);
  return cudaGetLastError();
}

cudaError_t Launch(const GroupRows& args, cudaStream_t stream) {
  if (args.num_experts <= 0) return cudaErrorInvalidValue;
  TANDEM_LAUNCH_EARLY(GroupKernel, static_cast<unsigned>(args.num_experts), kGroupThreads, 0,
                      stream, args);
  return cudaGetLastError();
}

}  // namespace tandem::model::cuda
