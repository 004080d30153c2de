// The benchmarks of `tandem bench`: each takes its workload from the command line, so that another
// system can run the same, and prints one JSON object.
#ifndef TANDEM_TOOLS_TANDEM_BENCH_BENCH_H_
#define TANDEM_TOOLS_TANDEM_BENCH_BENCH_H_

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/status.h"
#include "tools/tandem/commands/command.h"

namespace tandem::bench {

void AddGenerate(CLI::App& bench, commands::Runner& runner);
void AddTrain(CLI::App& bench, commands::Runner& runner);
void AddSync(CLI::App& bench, commands::Runner& runner);
void AddRl(CLI::App& bench, commands::Runner& runner);
void AddPlan(CLI::App& bench, commands::Runner& runner);
void AddExact(CLI::App& bench, commands::Runner& runner);
void AddServe(CLI::App& bench, commands::Runner& runner);

// Completes a benchmark's command: accepts --json, which changes nothing, and makes run(options)
// the command's action.
template <typename Options>
void SetRun(CLI::App& command, commands::Runner& runner, std::shared_ptr<Options> options,
            absl::Status (*run)(const Options&)) {
  command
      .add_flag_callback(
          "--json", [] {}, "Accepted for uniformity: the output is always JSON")
      ->group("");
  command.callback([&runner, options, run] { runner = [options, run] { return run(*options); }; });
}

// The median; for an even count the mean of the two middle values; 0 for none.
double Median(std::vector<double> values);

// Draws the ids of torch.randint(1, vocab_size, [count]) with a CPU generator seeded with `seed`.
class TorchRandint {
 public:
  TorchRandint(uint64_t seed, int64_t vocab_size);
  std::vector<uint32_t> Draw(int64_t count);

 private:
  std::mt19937 generator_;
  const int64_t range_;
};

}  // namespace tandem::bench

#endif  // TANDEM_TOOLS_TANDEM_BENCH_BENCH_H_
