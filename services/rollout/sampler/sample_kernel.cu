#include "common/device/launch.cuh"
#include "common/model/kernels/cuda/device_math.cuh"
#include "common/model/kernels/cuda/exp_sum.cuh"
#include "services/rollout/sampler/sample_kernel.h"

namespace tandem::rollout::cuda {
namespace {

using model::cuda::ExpWeight;
using model::cuda::kAllLanes;
using model::cuda::kSumBlock;
using model::cuda::kWarp;
using model::cuda::LogProb;
using model::cuda::MaximumOfRow;

constexpr int kThreads = model::cuda::kExpSumThreads;
constexpr int kDigits = 256;  // of a key, which has four
constexpr int32_t kNoId = 0x7FFFFFFF;
// Weights, which are at most 1, are added up in units of it: sums of integers do not depend on the
// order in which threads come to add. 2^40 leaves 24 of 64 bits for the number of tokens.
constexpr double kWeightUnits = 1099511627776.0;  // 2^40

// Larger for larger logits; the two zeros are equal.
__device__ uint32_t KeyOf(float logit) {
  // Negative floats grow with falling bits, so those are inverted; the others move above them.
  const uint32_t bits = __float_as_uint(logit == 0.0f ? 0.0f : logit);
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

// How tokens rank: by logit, then by id. Those that rank at or before it are kept.
struct Last {
  uint32_t key = 0;
  int32_t id = kNoId;
  __device__ bool Keeps(uint32_t other, int32_t other_id) const {
    return other > key || (other == key && other_id <= id);
  }
};

// The stricter of two.
__device__ Last Stricter(const Last& a, const Last& b) {
  if (a.key != b.key) return a.key > b.key ? a : b;
  return a.id < b.id ? a : b;
}

// Shared memory of a block.
struct Shared {
  float floats[kWarp];
  double doubles[kWarp];
  int32_t ints[kWarp];
  unsigned long long bins[kDigits];
  float weights[kSumBlock];
  uint32_t key;
  unsigned long long left;
  int32_t id;
};

// A row, its maximum, and the temperature.
struct Row {
  const float* logits;
  int64_t size;
  float maximum;
  float inverse_temperature;
  __device__ float Weight(int64_t i) const {
    return ExpWeight(logits[i], maximum, inverse_temperature);
  }
};

__device__ unsigned long long UnitsOf(float weight) {
  return static_cast<unsigned long long>(static_cast<double>(weight) * kWeightUnits);
}

// The sum over kept entries of their weights; that of each kSumBlock entries goes to `sums`.
__device__ double SumWeights(const Row& row, const Last& last, double* sums, Shared& shared) {
  return model::cuda::SumOfWeights(
      row.size,
      [&](int64_t i) {
        return last.Keeps(KeyOf(row.logits[i]), static_cast<int32_t>(i)) ? row.Weight(i) : 0.0f;
      },
      sums, shared.doubles);
}

// The `wanted`-th of the kept entries with this key, by id, counted from 1; kNoId where there are
// fewer.
__device__ int32_t IdOfTie(const Row& row, const Last& last, uint32_t key,
                           unsigned long long wanted, Shared& shared) {
  unsigned long long seen = 0;
  const int warp = threadIdx.x / kWarp;
  const int lane = threadIdx.x % kWarp;
  for (int64_t begin = 0; begin < row.size; begin += kThreads) {
    const int64_t i = begin + threadIdx.x;
    const bool tied =
        i < row.size && KeyOf(row.logits[i]) == key && last.Keeps(key, static_cast<int32_t>(i));
    const int count = __syncthreads_count(tied);
    if (seen + count < wanted) {
      seen += count;
      continue;
    }
    const unsigned lanes = __ballot_sync(kAllLanes, tied);
    if (lane == 0) shared.ints[warp] = __popc(lanes);
    __syncthreads();
    int before = 0;
    for (int w = 0; w < warp; ++w) before += shared.ints[w];
    before += __popc(lanes & ((1u << lane) - 1));
    if (tied && seen + before + 1 == wanted) shared.id = static_cast<int32_t>(i);
    __syncthreads();
    const int32_t id = shared.id;
    // Nobody may write shared.id again before all have read it.
    __syncthreads();
    return id;
  }
  return kNoId;
}

// Walks the entries in rank order, each weighted `units(i)`: finds the key at which `wanted` is
// reached, and the weight still wanted from entries with this key. Radix select: one digit of the
// key after the other, from the highest.
struct Reached {
  uint32_t key;
  unsigned long long left;
};
template <typename Units>
__device__ Reached Reach(const Row& row, const Last& last, unsigned long long wanted,
                         const Units& units, Shared& shared) {
  uint32_t prefix = 0;
  const int lane = threadIdx.x % kWarp;
  for (int shift = 24; shift >= 0; shift -= 8) {
    for (int bin = threadIdx.x; bin < kDigits; bin += kThreads) shared.bins[bin] = 0;
    __syncthreads();
    const uint32_t above = shift == 24 ? 0 : 0xFFFFFFFFu << (shift + 8);
    for (int64_t begin = 0; begin < row.size; begin += kThreads) {
      const int64_t i = begin + threadIdx.x;
      const uint32_t key = i < row.size ? KeyOf(row.logits[i]) : 0;
      const bool counts =
          i < row.size && last.Keeps(key, static_cast<int32_t>(i)) && (key & above) == prefix;
      const uint32_t digit = (key >> shift) & (kDigits - 1);
      const unsigned long long value = counts ? units(i) : 0;
      // Lower digits scatter, so the atomics seldom meet.
      if (shift < 24) {
        if (value > 0) atomicAdd(&shared.bins[digit], value);
        continue;
      }
      // The highest digit is sign and exponent: a warp has few of them, so each is added up first.
      unsigned left = __ballot_sync(kAllLanes, value > 0);
      while (left != 0) {
        const int leader = __ffs(left) - 1;
        const uint32_t chosen = __shfl_sync(kAllLanes, digit, leader);
        const bool mine = value > 0 && digit == chosen;
        unsigned long long sum = mine ? value : 0;
        for (int step = kWarp / 2; step > 0; step /= 2) {
          sum += __shfl_xor_sync(kAllLanes, sum, step);
        }
        if (lane == 0) atomicAdd(&shared.bins[chosen], sum);
        left &= ~__ballot_sync(kAllLanes, mine);
      }
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      unsigned long long left = wanted;
      int lowest = 0;  // digit with anything in it
      while (lowest < kDigits - 1 && shared.bins[lowest] == 0) ++lowest;
      int digit = kDigits - 1;
      while (digit > lowest && shared.bins[digit] < left) left -= shared.bins[digit--];
      shared.key = prefix | (static_cast<uint32_t>(digit) << shift);
      shared.left = left;
    }
    __syncthreads();
    prefix = shared.key;
    wanted = shared.left;
    // The next digit clears the bins and writes both again.
    __syncthreads();
  }
  return {prefix, wanted};
}

__device__ Last TopK(const Row& row, int64_t k, Shared& shared) {
  const Reached reached = Reach(
      row, Last(), k, [](int64_t) { return 1ull; }, shared);
  return {reached.key, IdOfTie(row, Last(), reached.key, reached.left, shared)};
}

// The last of the likeliest among the kept that hold the share `top_p` of their weight.
__device__ Last TopP(const Row& row, const Last& last, double top_p, Shared& shared) {
  unsigned long long sum = 0;
  for (int64_t i = threadIdx.x; i < row.size; i += kThreads) {
    if (last.Keeps(KeyOf(row.logits[i]), static_cast<int32_t>(i))) sum += UnitsOf(row.Weight(i));
  }
  if (threadIdx.x == 0) shared.left = 0;
  __syncthreads();
  for (int step = kWarp / 2; step > 0; step /= 2) sum += __shfl_xor_sync(kAllLanes, sum, step);
  if (threadIdx.x % kWarp == 0) atomicAdd(&shared.left, sum);
  __syncthreads();
  const unsigned long long total = shared.left;
  // Reach() writes shared.left again, after all have read the total.
  __syncthreads();
  auto wanted = static_cast<unsigned long long>(ceil(top_p * static_cast<double>(total)));
  wanted = wanted < 1 ? 1 : wanted > total ? total : wanted;
  const Reached reached = Reach(
      row, last, wanted, [&](int64_t i) { return UnitsOf(row.Weight(i)); }, shared);
  // Entries with one key weigh alike.
  const bool negative = (reached.key & 0x80000000u) == 0;
  const float logit = __uint_as_float(negative ? ~reached.key : reached.key & 0x7FFFFFFFu);
  const unsigned long long each = UnitsOf(ExpWeight(logit, row.maximum, row.inverse_temperature));
  if (each == 0) return {reached.key, kNoId};
  const unsigned long long ties = (reached.left + each - 1) / each;
  return {reached.key, IdOfTie(row, last, reached.key, ties < 1 ? 1 : ties, shared)};
}

// Like the CPU's: first by block sums, then within one block.
__device__ int32_t Draw(const Row& row, const Last& last, const double* sums, double total,
                        double uniform, Shared& shared) {
  const int64_t blocks = (row.size + kSumBlock - 1) / kSumBlock;
  double target = uniform * total;
  int64_t chosen = 0;
  // Every thread, for it costs no more.
  for (int64_t block = 0; block < blocks; ++block) {
    if (sums[block] <= 0.0) continue;
    chosen = block;
    if (target < sums[block]) break;
    target -= sums[block];
  }
  const int64_t begin = chosen * kSumBlock;
  if (threadIdx.x < kSumBlock) {
    const int64_t i = begin + threadIdx.x;
    const bool kept = i < row.size && last.Keeps(KeyOf(row.logits[i]), static_cast<int32_t>(i));
    shared.weights[threadIdx.x] = kept ? row.Weight(i) : 0.0f;
  }
  __syncthreads();
  if (threadIdx.x > 0) return 0;
  double sum = 0.0;
  int place = 0;
  for (int j = 0; j < kSumBlock; ++j) {
    if (shared.weights[j] <= 0.0f) continue;
    place = j;
    sum += shared.weights[j];
    if (sum > target) break;
  }
  return static_cast<int32_t>(begin + place);
}

__global__ void __launch_bounds__(kThreads)
    SampleKernel(const float* logits, int64_t vocab, const SampleJob* jobs, SampleResult* results) {
  __shared__ Shared shared;
  TANDEM_DYNAMIC_SHARED(double, sums);
  const SampleJob job = jobs[blockIdx.x];
  const float* const x = logits + job.row * vocab;
  const float maximum = MaximumOfRow(x, vocab, shared.floats);
  if (!isfinite(maximum)) {
    if (threadIdx.x == 0) results[blockIdx.x] = {-1, 0.0f, 0.0f};
    return;
  }
  const bool greedy = job.inverse_temperature < 0.0f;
  const bool scaled = !greedy && job.inverse_temperature != 1.0f;
  const double raw_total = SumWeights({x, vocab, maximum, 1.0f}, Last(), sums, shared);
  const Row row{x, vocab, maximum, greedy ? 1.0f : job.inverse_temperature};
  double total = raw_total;  // of all tokens at the temperature
  if (scaled) {
    __syncthreads();
    total = SumWeights(row, Last(), sums, shared);
  }

  int32_t id = 0;  // in thread 0
  if (greedy) {
    const Last all;
    id = IdOfTie(row, all, KeyOf(maximum), 1, shared);
  } else {
    Last last;
    if (job.top_k > 0 && job.top_k < vocab) last = TopK(row, job.top_k, shared);
    if (job.top_p < 1.0) last = Stricter(last, TopP(row, last, job.top_p, shared));
    if (job.min_p > 0.0) {
      const double least = maximum + log(job.min_p) / row.inverse_temperature;
      last = Stricter(last, {KeyOf(static_cast<float>(least)), kNoId});
    }
    double kept = total;
    if (last.key != 0 || last.id != kNoId) {
      __syncthreads();
      kept = SumWeights(row, last, sums, shared);
    }
    __syncthreads();
    id = Draw(row, last, sums, kept, job.uniform, shared);
  }
  if (threadIdx.x > 0) return;
  SampleResult result;
  result.id = id;
  result.logprob = LogProb(x[id], maximum, 1.0f, raw_total);
  result.processed_logprob =
      scaled ? LogProb(x[id], maximum, row.inverse_temperature, total) : result.logprob;
  results[blockIdx.x] = result;
}

}  // namespace

cudaError_t LaunchSample(const float* logits, int64_t vocab, const SampleJob* jobs, int64_t count,
                         SampleResult* results, cudaStream_t stream) {
  if (count == 0) return cudaSuccess;
  if (vocab > kMostVocabulary) return cudaErrorInvalidValue;
  const size_t sums = (vocab + kSumBlock - 1) / kSumBlock * sizeof(double);
  TANDEM_LAUNCH(SampleKernel, static_cast<unsigned>(count), kThreads, sums, stream, logits, vocab,
                jobs, results);
  return cudaGetLastError();
}

}  // namespace tandem::rollout::cuda
