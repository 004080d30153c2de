#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tools/tandem/bench/roofline.cc"
// clang-format off: first, so that all of this is compiled for every target
#include "hwy/foreach_target.h"
// clang-format on

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <functional>
#include <vector>

#include "common/host/run_on_threads.h"
#include "common/model/kernels/scratch.h"
#include "hwy/highway.h"
#include "tools/tandem/bench/roofline.h"

HWY_BEFORE_NAMESPACE();
namespace tandem::bench::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Eight sums, so that the additions do not wait for each other.
uint64_t SumBytes(const uint64_t* data, int64_t count) {
  const hn::ScalableTag<uint64_t> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  auto s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0, s4 = s0, s5 = s0, s6 = s0, s7 = s0;
  for (int64_t i = 0; i + 8 * lanes <= count; i += 8 * lanes) {
    s0 = hn::Add(s0, hn::LoadU(d, data + i));
    s1 = hn::Add(s1, hn::LoadU(d, data + i + lanes));
    s2 = hn::Add(s2, hn::LoadU(d, data + i + 2 * lanes));
    s3 = hn::Add(s3, hn::LoadU(d, data + i + 3 * lanes));
    s4 = hn::Add(s4, hn::LoadU(d, data + i + 4 * lanes));
    s5 = hn::Add(s5, hn::LoadU(d, data + i + 5 * lanes));
    s6 = hn::Add(s6, hn::LoadU(d, data + i + 6 * lanes));
    s7 = hn::Add(s7, hn::LoadU(d, data + i + 7 * lanes));
  }
  const auto low = hn::Add(hn::Add(s0, s1), hn::Add(s2, s3));
  const auto high = hn::Add(hn::Add(s4, s5), hn::Add(s6, s7));
  return hn::GetLane(hn::Add(low, high));
}

// The flops of `rounds` rounds of twelve chains, more than any latency needs; `sum` keeps the
// compiler from leaving them out.
double MultiplyAdd(int64_t rounds, float start, float& sum) {
  const hn::ScalableTag<float> d;
  const auto x = hn::Set(d, 0.999f), y = hn::Set(d, start);
  // Different initial values, because the compiler would merge equal chains.
  auto a0 = hn::Set(d, 0.0f), a1 = hn::Set(d, 1.0f), a2 = hn::Set(d, 2.0f), a3 = hn::Set(d, 3.0f),
       a4 = hn::Set(d, 4.0f), a5 = hn::Set(d, 5.0f), a6 = hn::Set(d, 6.0f), a7 = hn::Set(d, 7.0f),
       a8 = hn::Set(d, 8.0f), a9 = hn::Set(d, 9.0f), a10 = hn::Set(d, 10.0f),
       a11 = hn::Set(d, 11.0f);
  for (int64_t i = 0; i < rounds; ++i) {
    a0 = hn::MulAdd(a0, x, y);
    a1 = hn::MulAdd(a1, x, y);
    a2 = hn::MulAdd(a2, x, y);
    a3 = hn::MulAdd(a3, x, y);
    a4 = hn::MulAdd(a4, x, y);
    a5 = hn::MulAdd(a5, x, y);
    a6 = hn::MulAdd(a6, x, y);
    a7 = hn::MulAdd(a7, x, y);
    a8 = hn::MulAdd(a8, x, y);
    a9 = hn::MulAdd(a9, x, y);
    a10 = hn::MulAdd(a10, x, y);
    a11 = hn::MulAdd(a11, x, y);
  }
  const auto low = hn::Add(hn::Add(hn::Add(a0, a1), hn::Add(a2, a3)), hn::Add(a4, a5));
  const auto high = hn::Add(hn::Add(hn::Add(a6, a7), hn::Add(a8, a9)), hn::Add(a10, a11));
  sum += hn::GetLane(hn::Add(low, high));
  return 2.0 * 12.0 * static_cast<double>(rounds) * static_cast<double>(hn::Lanes(d));
}

}  // namespace tandem::bench::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace tandem::bench {
namespace {

HWY_EXPORT(SumBytes);
HWY_EXPORT(MultiplyAdd);

using Clock = std::chrono::steady_clock;

constexpr int kTries = 7;
constexpr int64_t kRounds = 2'000'000;

// The least seconds, from the first thread's beginning to the last one's end, in which all threads
// have done work(thread) at once.
double LeastSeconds(int threads, const std::function<void(int)>& work) {
  double least = 1e9;
  for (int attempt = 0; attempt < kTries; ++attempt) {
    std::vector<Clock::time_point> begin(threads), end(threads);
    host::RunTogether(static_cast<size_t>(threads), [&](size_t t) {
      begin[t] = Clock::now();
      work(static_cast<int>(t));
      end[t] = Clock::now();
    });
    const auto seconds =
        *std::max_element(end.begin(), end.end()) - *std::min_element(begin.begin(), begin.end());
    least = std::min(least, std::chrono::duration<double>(seconds).count());
  }
  return least;
}

}  // namespace

MachineRates MeasureMachineRates(int64_t size_bytes, int threads) {
  const int64_t count = std::max<int64_t>(size_bytes / 8, threads);
  const model::kernels::Buffer buffer = model::kernels::AllocateBytes(count * 8);
  auto* const data = static_cast<uint64_t*>(buffer.get());
  std::fill(data, data + count, uint64_t{1});
  std::atomic<uint64_t> read{0};
  const double read_seconds = LeastSeconds(threads, [&](int t) {
    const int64_t begin = count * t / threads;
    read += HWY_DYNAMIC_DISPATCH(SumBytes)(data + begin, count * (t + 1) / threads - begin);
  });
  std::atomic<double> flops{0};
  std::atomic<float> result{0};
  const double multiply_seconds = LeastSeconds(threads, [&](int) {
    float sum = 0;
    flops = HWY_DYNAMIC_DISPATCH(MultiplyAdd)(kRounds, static_cast<float>(data[0]), sum);
    result = sum;
  });
  MachineRates rates;
  // Both results are positive: neither loop can be left out.
  if (read > 0) rates.read_bytes_per_second = static_cast<double>(count * 8) / read_seconds;
  if (result > 0) rates.flops_per_second = flops * threads / multiply_seconds;
  return rates;
}

double StepCost::Seconds(const MachineRates& rates) const {
  return std::max(bytes / rates.read_bytes_per_second, flops / rates.flops_per_second);
}

namespace {

// Elements of the experts that no row of a step reaches, if the router prefers none: a row misses
// an expert with probability 1 - top_k / num_experts.
double UnreachedElements(const model::ExpertSpec& experts, const model::ModelSpec& spec,
                         double rows) {
  const auto count = static_cast<double>(experts.num_experts);
  const double missed = 1.0 - static_cast<double>(experts.routing.top_k) / count;
  return count * std::pow(missed, rows) *
         static_cast<double>(experts.ExpertElements(spec.hidden_size));
}

}  // namespace

StepCost DecodeCost(const model::ModelSpec& spec, int64_t element_bytes, int64_t batch,
                    double context) {
  // Rows of an embedding are looked up, unless it is the output projection too.
  const int64_t looked_up = spec.tie_word_embeddings ? 0 : spec.vocab_size * spec.hidden_size;
  const auto multiplied = static_cast<double>(spec.num_active_parameters() - looked_up);
  const auto rows = static_cast<double>(batch);
  const int64_t of_inputs =
      spec.layer_inputs.has_value() ? spec.layer_inputs->vocab_size * spec.layer_input_size() : 0;
  double read = static_cast<double>(spec.num_parameters() - looked_up - of_inputs);
  double keys = 0, scores = 0;
  for (const model::LayerSpec& layer : spec.layers) {
    if (layer.experts.has_value()) read -= UnreachedElements(*layer.experts, spec, rows);
    if (layer.attention.delta.has_value()) {
      // A state in float32, which is read and written, whatever the context.
      const model::DeltaSpec& delta = *layer.attention.delta;
      const auto state = static_cast<double>(delta.value_size() * delta.key_dim);
      keys += 2.0 * state * rows * 4.0 / static_cast<double>(element_bytes);
      scores += 6.0 * state * rows;
      continue;
    }
    const model::Window& window = layer.attention.window;
    const auto size = static_cast<double>(window.size);
    // In chunks, on average over a generation.
    const double in_window = window.chunked && context > size ? 0.5 * size : size;
    const double seen = window.IsLimited() ? std::min(context, in_window) : context;
    model::AttentionSpec attention = layer.attention;
    attention.kv_layer = -1;  // another layer's keys and values are read like its own
    const model::CacheSpec cache = model::CacheOf(attention, {}, model::LatentCache::kLatents);
    const int64_t cached = cache.shared ? cache.head_dim : attention.kv_size() + attention.v_size();
    const int64_t of_head = cache.head_dim + cache.v_head_dim;
    keys += static_cast<double>(cached) * seen * rows;
    scores += 2.0 * static_cast<double>(attention.num_heads * of_head) * seen * rows;
  }
  return {(read + keys) * static_cast<double>(element_bytes), 2.0 * multiplied * rows + scores};
}

}  // namespace tandem::bench

#endif  // HWY_ONCE
