#include "tools/tandem/bench/bench.h"

#include <algorithm>

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

}  // namespace tandem::bench

namespace tandem::commands {

void AddBench(CLI::App& app, Runner& runner) {
  CLI::App* command = app.add_subcommand("bench", "Runs a benchmark and prints one JSON object");
  command->require_subcommand(1);
  bench::AddGenerate(*command, runner);
  bench::AddTrain(*command, runner);
  bench::AddSync(*command, runner);
  bench::AddRl(*command, runner);
  bench::AddPlan(*command, runner);
  bench::AddExact(*command, runner);
  bench::AddServe(*command, runner);
}

}  // namespace tandem::commands
