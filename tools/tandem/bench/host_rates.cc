#include "tools/tandem/bench/host_rates.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <memory>
#include <new>
#include <thread>
#include <vector>

#include "absl/types/span.h"
#include "common/comm/file_mapping.h"
#include "common/host/control_group.h"
#include "common/host/run_on_threads.h"
#include "common/model/kernels/gemm.h"
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

// Memory of the kind that processes lend each other.
class FileMemory {
 public:
  explicit FileMemory(int64_t bytes) : bytes_(static_cast<size_t>(bytes)) {
    const int file = memfd_create("tandem-bench", MFD_CLOEXEC);
    if (file >= 0 && ftruncate(file, bytes) == 0) {
      data_ = comm::MapMemoryFile(file, bytes, PROT_READ | PROT_WRITE);
    }
    if (file >= 0) close(file);
    if (data_ == nullptr) throw std::bad_alloc();
    comm::ProvideLargePages(data_, bytes);
    std::memset(data_, 1, bytes_);
  }
  ~FileMemory() { munmap(data_, bytes_); }
  FileMemory(const FileMemory&) = delete;
  FileMemory& operator=(const FileMemory&) = delete;

  std::byte* data() const { return data_; }

 private:
  const size_t bytes_;
  std::byte* data_ = nullptr;
};

// The memory of one core: wire bytes as the services lend them, matrices as they store them.
class Bench {
 public:
  Bench(const HostWork& work, int64_t num_portions)
      : work_(work),
        num_portions_(num_portions),
        source_(num_portions * kPortion),
        target_(num_portions * kPortion),
        packed_(work.element_bytes == 2 ? kernels::Element::kBFloat16 : kernels::Element::kFloat32,
                work.columns, num_portions * kPortion / work.element_bytes / work.columns) {
    std::memset(const_cast<void*>(packed_.data()), 1, static_cast<size_t>(packed_.size_bytes()));
  }

  // The work of a shard's sender: digests its bytes in place.
  void Send() {
    for (int64_t i = 0; i < num_portions_; ++i) {
      weights::AddRange(i * kPortion, {At(source_, i), kPortion}, sum_);
    }
  }
  // The copies of a bare transfer.
  void Copy() {
    for (int64_t i = 0; i < num_portions_; ++i) {
      std::memcpy(At(target_, i), At(source_, i), kPortion);
    }
  }
  // Makes Receive() read from `before`, and `after` read from this core.
  void Chain(Bench* before, Bench* after) {
    before_ = before;
    after_ = after;
    received_ = 0;
  }
  // The copies of an update's receiver: digests too, and reorders through the cache for its matrix
  // products. Each core in a chain receives from the previous one's copy.
  void Receive() {
    const int64_t grain = packed_.group_columns() * work_.columns * work_.element_bytes;
    const int64_t portion = std::max<int64_t>(1, kPortion / grain) * grain;
    const int64_t all = num_portions_ * kPortion;
    const int64_t landing = std::max<int64_t>(1, std::min(kLanding * kPortion, all) / portion);
    const int64_t last = all / portion * portion;
    const int64_t message = std::min(work_.message_bytes, landing * portion / 2);
    // Notifies the next receiver of complete messages.
    const auto pass_on = [&](int64_t received) {
      if (received == last || received - received_ >= message) received_ = received;
    };
    double unpacked = 0;  // bytes that are held as they travel
    for (int64_t at = 0; at + portion <= all; at += portion) {
      const int64_t slot = at / portion % landing * portion;
      while (before_ != nullptr && before_->received_ < at + portion) std::this_thread::yield();
      while (after_ != nullptr && at + portion - after_->received_ > landing * portion) {
        std::this_thread::yield();
      }
      const std::byte* const source =
          before_ != nullptr ? At(before_->target_, 0) + slot : At(source_, 0) + at;
      const absl::Span<const std::byte> from(source, static_cast<size_t>(portion));
      unpacked += static_cast<double>(portion) * (1 - work_.packed_share);
      if (after_ == nullptr && unpacked >= static_cast<double>(portion)) {
        unpacked -= static_cast<double>(portion);
        weights::StreamRange(at, from, At(target_, 0) + at, sum_);
        pass_on(at + portion);
        continue;
      }
      const bool stays = after_ != nullptr || !work_.lends;
      std::byte* const landed = At(target_, 0) + (stays ? slot : 0);
      if (work_.lends) {
        weights::CopyRange(at, from, landed, sum_);
      } else {
        std::memcpy(landed, from.data(), from.size());
        weights::AddRange(at, {landed, from.size()}, sum_);
      }
      const int64_t first = at / work_.element_bytes;
      const int64_t count =
          std::min(portion / work_.element_bytes, packed_.n() * packed_.k() - first);
      packed_.Write(first, count, landed);
      pass_on(at + portion);
    }
  }

 private:
  static std::byte* At(const FileMemory& memory, int64_t portion) {
    return memory.data() + portion * kPortion;
  }

  const HostWork work_;
  const int64_t num_portions_;
  const FileMemory source_, target_;
  kernels::PackedMatrix packed_;
  weights::DigestSum sum_;
  Bench* before_ = nullptr;
  Bench* after_ = nullptr;
  std::atomic<int64_t> received_{0};  // bytes that may be passed on
};

}  // namespace

HostRates MeasureHostRates(const HostWork& work) {
  HostRates rates;
  rates.cores = host::UsableCores();
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
      for (size_t core = 0; core + 1 < benches.size() && work.lends && work.passes_on; core += 2) {
        benches[core]->Chain(nullptr, benches[core + 1].get());
        benches[core + 1]->Chain(benches[core].get(), nullptr);
      }
      std::vector<double> of_core(benches.size());
      host::RunTogether(benches.size(), [&](size_t core) {
        const auto begin = Clock::now();
        ((*benches[core]).*part)();
        of_core[core] = std::chrono::duration<double>(Clock::now() - begin).count();
      });
      seconds.push_back(*std::max_element(of_core.begin(), of_core.end()));
    }
    return Median(seconds) / static_cast<double>(num_portions * kPortion);
  };
  rates.send = 1 / measure(&Bench::Send);
  const double copy = measure(&Bench::Copy);
  rates.copy = 1 / copy;
  rates.unpack = 1 / std::max(1e-12, measure(&Bench::Receive) - (work.lends ? 0 : copy));
  return rates;
}

}  // namespace tandem::bench
