#include "tools/tandem/bench/host_rates.h"

#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "absl/types/span.h"
#include "common/model/kernels/gemm.h"
#include "common/model/kernels/scratch.h"
#include "common/probe/control_group.h"
#include "common/weights/additive_digest.h"
#include "tools/tandem/bench/bench.h"

namespace tandem::bench {
namespace {

namespace kernels = ::tandem::model::kernels;
using Clock = std::chrono::steady_clock;

constexpr int64_t kPortion = int64_t{256} << 10;    // bytes: as messages are taken
constexpr int64_t kLeastBytes = int64_t{64} << 20;  // more than the caches hold
constexpr int64_t kMostBytes = int64_t{192} << 20;  // from here on nothing changes with size
constexpr int64_t kLanding = 32;                    // portions that are on their way at once
constexpr int kRounds = 3;

// The memory of one core, in large pages as the services' is.
class Bench {
 public:
  Bench(const HostWork& work, int64_t num_portions)
      : work_(work),
        num_portions_(num_portions),
        source_(Filled(num_portions * kPortion)),
        target_(Filled(num_portions * kPortion)),
        packed_(work.element_bytes == 2 ? kernels::Element::kBFloat16 : kernels::Element::kFloat32,
                work.columns, num_portions * kPortion / work.element_bytes / work.columns) {
    std::memset(const_cast<void*>(packed_.data()), 1, static_cast<size_t>(packed_.size_bytes()));
  }

  // What a shard's sender does: it digests its bytes where they lie.
  void Send() {
    for (int64_t i = 0; i < num_portions_; ++i) {
      weights::AddRange(i * kPortion, {At(source_, i), kPortion}, sum_);
    }
  }
  // A bare transfer's part in which bytes are copied.
  void Copy() {
    for (int64_t i = 0; i < num_portions_; ++i) {
      std::memcpy(At(target_, i), At(source_, i), kPortion);
    }
  }
  // The same as a receiver of an update does it: with the digest, and by way of the cache into the
  // order of its products.
  void Receive() {
    const int64_t elements = kPortion / work_.element_bytes;
    const auto upto = [&](int64_t portions) {
      return static_cast<int64_t>(static_cast<double>(portions) * work_.packed_share);
    };
    for (int64_t i = 0; i < num_portions_; ++i) {
      const absl::Span<const std::byte> from(At(source_, i), kPortion);
      if (upto(i + 1) == upto(i)) {
        weights::StreamRange(i * kPortion, from, At(target_, i), sum_);
        continue;
      }
      std::byte* const landed = At(target_, work_.lends && !work_.passes_on ? 0 : i % kLanding);
      if (work_.lends) {
        weights::CopyRange(i * kPortion, from, landed, sum_);
      } else {
        std::memcpy(landed, from.data(), kPortion);
        weights::AddRange(i * kPortion, {landed, kPortion}, sum_);
      }
      const int64_t first = i * elements;
      const int64_t count = std::min(elements, packed_.n() * packed_.k() - first);
      packed_.Write(first, count, landed);
    }
  }

 private:
  static kernels::Buffer Filled(int64_t bytes) {
    kernels::Buffer memory = kernels::AllocateBytes(bytes);
    std::memset(memory.get(), 1, static_cast<size_t>(bytes));
    return memory;
  }
  static std::byte* At(const kernels::Buffer& memory, int64_t portion) {
    return static_cast<std::byte*>(memory.get()) + portion * kPortion;
  }

  const HostWork work_;
  const int64_t num_portions_;
  const kernels::Buffer source_, target_;
  kernels::PackedMatrix packed_;
  weights::DigestSum sum_;
};

}  // namespace

HostRates MeasureHostRates(const HostWork& work) {
  HostRates rates;
  rates.cores = probe::UsableCores();
  const int64_t num_portions = std::clamp(work.size_bytes, kLeastBytes, kMostBytes) / kPortion;
  std::vector<std::unique_ptr<Bench>> benches;
  for (int core = 0; core < rates.cores; ++core) {
    benches.push_back(std::make_unique<Bench>(work, num_portions));
  }
  // Seconds per byte, median of the rounds. Each thread looks at its own clock: the one that made
  // them may be without a core until they are done.
  const auto measure = [&](void (Bench::*part)()) {
    std::vector<double> seconds;
    for (int round = 0; round < kRounds; ++round) {
      std::barrier start(rates.cores);
      std::vector<double> of_core(benches.size());
      std::vector<std::thread> threads;
      for (size_t core = 0; core < benches.size(); ++core) {
        threads.emplace_back([&, core] {
          start.arrive_and_wait();
          const auto begin = Clock::now();
          ((*benches[core]).*part)();
          of_core[core] = std::chrono::duration<double>(Clock::now() - begin).count();
        });
      }
      for (std::thread& thread : threads) thread.join();
      seconds.push_back(*std::max_element(of_core.begin(), of_core.end()));
    }
    return Median(seconds) / static_cast<double>(num_portions * kPortion);
  };
  rates.send = 1 / measure(&Bench::Send);
  const double copy = measure(&Bench::Copy);
  rates.unpack = 1 / std::max(1e-12, measure(&Bench::Receive) - copy);
  return rates;
}

}  // namespace tandem::bench
