#include "tools/tandem/bench/host_rates.h"

#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "absl/types/span.h"
#include "common/model/kernels/gemm.h"
#include "common/weights/additive_digest.h"

namespace tandem::bench {
namespace {

namespace kernels = ::tandem::model::kernels;
using Clock = std::chrono::steady_clock;

constexpr int64_t kPortion = int64_t{1} << 20;  // bytes on the wire
constexpr int64_t kPortions = 64;               // more than the caches hold
constexpr int64_t kSlots = 2;                   // what a channel of shared memory has, in portions
constexpr int64_t kDepth = 512;                 // columns of the matrix that is packed
constexpr int kRounds = 3;

// The memory of one core.
class Bench {
 public:
  explicit Bench(int64_t element_bytes)
      : element_bytes_(element_bytes),
        master_(kPortions * kPortion / element_bytes, 0.5f),
        source_(kPortions * kPortion),
        slots_(kSlots * kPortion),
        target_(kPortions * kPortion),
        packed_(element_bytes == 2 ? kernels::Element::kBFloat16 : kernels::Element::kFloat32,
                kDepth, kPortions * kPortion / element_bytes / kDepth) {}

  void Pass(int64_t portion) {
    std::byte* const slot = slots_.data() + portion % kSlots * kPortion;
    std::memcpy(slot, source_.data() + portion * kPortion, kPortion);
    std::memcpy(Target(portion), slot, kPortion);
  }
  void Send(int64_t portion) {
    std::byte* const bytes = source_.data() + portion * kPortion;
    if (element_bytes_ == 2) {
      const float* const from = master_.data() + portion * kPortion / 2;
      auto* const to = reinterpret_cast<kernels::BFloat16*>(bytes);
      for (int64_t i = 0; i < kPortion / 2; ++i) kernels::FromFloat(from[i], to[i]);
    }
    weights::AddRange(portion * kPortion, {bytes, kPortion}, sum_);
  }
  void PassAndUnpack(int64_t portion) {
    Pass(portion);
    weights::AddRange(portion * kPortion, {Target(portion), kPortion}, sum_);
    const int64_t panel = kernels::PackedMatrix::panel_columns() * kDepth * element_bytes_;
    packed_.Repack({target_.data(), packed_.type(), 1, kDepth}, portion * kPortion / panel,
                   (portion + 1) * kPortion / panel);
  }

 private:
  std::byte* Target(int64_t portion) { return target_.data() + portion * kPortion; }

  const int64_t element_bytes_;
  std::vector<float> master_;
  std::vector<std::byte> source_, slots_, target_;
  kernels::PackedMatrix packed_;
  weights::DigestSum sum_;
};

}  // namespace

HostRates MeasureHostRates(int64_t element_bytes) {
  HostRates rates;
  rates.cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  std::vector<std::unique_ptr<Bench>> benches;
  for (int core = 0; core < rates.cores; ++core) {
    benches.push_back(std::make_unique<Bench>(element_bytes));
  }
  // Seconds per byte: the least of a few rounds, of which the first touches the memory.
  const auto measure = [&](void (Bench::*work)(int64_t)) {
    double least = 1e9;
    for (int round = 0; round < kRounds; ++round) {
      std::barrier start(rates.cores + 1);
      std::vector<std::thread> threads;
      for (const auto& bench : benches) {
        threads.emplace_back([&start, &bench, work] {
          start.arrive_and_wait();
          for (int64_t portion = 0; portion < kPortions; ++portion) ((*bench).*work)(portion);
        });
      }
      start.arrive_and_wait();
      const auto begin = Clock::now();
      for (std::thread& thread : threads) thread.join();
      least = std::min(least, std::chrono::duration<double>(Clock::now() - begin).count());
    }
    return least / static_cast<double>(kPortions * kPortion);
  };
  const double pass = measure(&Bench::Pass);
  rates.send = 1 / measure(&Bench::Send);
  rates.unpack = 1 / std::max(1e-12, measure(&Bench::PassAndUnpack) - pass);
  return rates;
}

}  // namespace tandem::bench
