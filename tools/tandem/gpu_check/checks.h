// The checks of `tandem gpu-check`, each in a file of its own. Each returns by `deadline`, plus a
// few seconds in which its programs end.
#ifndef TANDEM_TOOLS_TANDEM_GPU_CHECK_CHECKS_H_
#define TANDEM_TOOLS_TANDEM_GPU_CHECK_CHECKS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "nlohmann/json.hpp"
#include "tools/tandem/gpu_check/check.h"
#include "tools/tandem/gpu_check/machine.h"
#include "tools/tandem/gpu_check/tools.h"

namespace tandem::gpu_check {

// Reads `machine`'s facts; fails without a usable GPU.
CheckResult CheckFacts(const Tools& tools, Machine& machine, absl::Time deadline);

// Every kernel of ours against ATen, on the GPU.
CheckResult CheckKernels(const Tools& tools, absl::Time deadline);
// The same on what a program says. run(k) runs the comparisons from number k on, which print
//   {"comparison": k, "of": n, "begins": NAME}
//   {"comparison": k, "of": n, "name": NAME, "passed", "ours", "greatest_difference", ...}
// A comparison in which the program ends is a failure; those after it are run by another program.
CheckResult CompareKernels(const std::function<ChildOutput(int64_t first)>& run);

// The trainer's log-probs against the rollout's, of the same tokens, with exact and with fast
// numerics.
CheckResult CheckLogProbs(const Tools& tools, absl::Time deadline);

// How far the lists of log-probs of two sides are apart.
struct Difference {
  int64_t tokens = 0;
  double greatest = 0;
  double mean = 0;
};
// Lines are {"trainer": [...], "rollout": [...]}. INVALID_ARGUMENT if there are none, if the lists
// differ in length, or if a value is not a finite number.
absl::StatusOr<Difference> DifferenceOf(const std::vector<nlohmann::json>& lines);

// Tokens that the rollout samples on the GPU against those that it samples on the CPU.
CheckResult CheckSampling(const Tools& tools, absl::Time deadline);
// The share of the tokens, counted up to the first difference of each completion, which are the
// same. Lines are {"ids": [...]}. INVALID_ARGUMENT if the numbers of lines or tokens differ or are 0.
absl::StatusOr<double> SameTokens(const std::vector<nlohmann::json>& a,
                                  const std::vector<nlohmann::json>& b);

// Measures `machine`'s rates.
CheckResult CheckRates(const Tools& tools, Machine& machine, absl::Time deadline);

// Throughput of training, against the measured rate of products.
CheckResult CheckTraining(const Tools& tools, const Machine& machine, absl::Time deadline);

// Throughput of decoding, against the measured limit.
CheckResult CheckDecoding(const Tools& tools, const Machine& machine, absl::Time deadline);

// Speed of a weight update between processes on GPUs, beside bare transfers and copies.
CheckResult CheckUpdates(const Tools& tools, const Machine& machine, absl::Time deadline);

// Of two ranks one is killed: the other has to notice. Skipped with a single GPU.
CheckResult CheckLostRank(const Tools& tools, const Machine& machine, absl::Time deadline);
// The same with a group of this kind. Backends are those of comm::CreateGroupOf().
CheckResult LoseRank(const Tools& tools, const std::string& device, const std::string& backend,
                     absl::Time deadline);

// compute-sanitizer's four tools on the comparisons of kernels. Skipped where it is not on PATH.
CheckResult CheckSanitizer(const Tools& tools, absl::Time deadline);

struct CheckSelection {
  bool full = false;              // with compute-sanitizer
  std::vector<std::string> only;  // names of checks; empty: all. The facts are always read.
};
// All of them, in order. `tools` and `machine` outlive the result.
std::vector<Check> AllChecks(const Tools& tools, Machine& machine, const CheckSelection& selection);

// The names of all checks.
std::vector<std::string> CheckNames();

}  // namespace tandem::gpu_check

#endif  // TANDEM_TOOLS_TANDEM_GPU_CHECK_CHECKS_H_
