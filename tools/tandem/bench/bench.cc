#include "tools/tandem/bench/bench.h"

#include <algorithm>
#include <atomic>
#include <thread>

#include "absl/time/clock.h"

namespace tandem::bench {

double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

// A 32-bit Mersenne twister and a remainder: what ATen's random_from_to does for ranges below 2^32.
TorchRandint::TorchRandint(uint64_t seed, int64_t vocab_size)
    : generator_(static_cast<uint32_t>(seed)), range_(vocab_size - 1) {}

std::vector<uint32_t> TorchRandint::Draw(int64_t count) {
  std::vector<uint32_t> ids(count);
  for (uint32_t& id : ids) id = 1 + static_cast<uint32_t>(generator_() % range_);
  return ids;
}

double MeasureReadBandwidth(int64_t size_bytes, int threads) {
  const int64_t count = size_bytes / static_cast<int64_t>(sizeof(uint64_t));
  std::vector<uint64_t> buffer(count, 1);
  std::atomic<uint64_t> sink{0};
  double best = 0;
  for (int repeat = 0; repeat < 5; ++repeat) {
    const absl::Time start = absl::Now();
    std::vector<std::thread> workers;
    for (int t = 0; t < threads; ++t) {
      workers.emplace_back([&, t] {
        const int64_t begin = count * t / threads;
        const int64_t end = count * (t + 1) / threads;
        // Four sums, so that the additions do not wait for each other.
        uint64_t sums[4] = {0, 0, 0, 0};
        for (int64_t i = begin; i + 4 <= end; i += 4) {
          for (int j = 0; j < 4; ++j) sums[j] += buffer[i + j];
        }
        sink += sums[0] + sums[1] + sums[2] + sums[3];
      });
    }
    for (std::thread& worker : workers) worker.join();
    const double seconds = absl::ToDoubleSeconds(absl::Now() - start);
    best = std::max(best, static_cast<double>(size_bytes) / seconds);
  }
  return sink > 0 ? best : 0;
}

}  // namespace tandem::bench

namespace tandem::commands {

void AddBench(CLI::App& app, Runner& runner) {
  CLI::App* command = app.add_subcommand("bench", "Figures for the comparison tables");
  command->require_subcommand(1);
  bench::AddGenerate(*command, runner);
  bench::AddTrain(*command, runner);
  bench::AddSync(*command, runner);
  bench::AddRl(*command, runner);
  bench::AddPlan(*command, runner);
}

}  // namespace tandem::commands
