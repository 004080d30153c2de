#include <vector>

#include "absl/algorithm/container.h"
#include "tools/tandem/gpu_check/checks.h"

namespace tandem::gpu_check {

std::vector<Check> AllChecks(const Tools& tools, Machine& machine,
                             const CheckSelection& selection) {
  std::vector<Check> checks = {
      {.name = "facts",
       .title = "driver, GPU, build",
       .limit = absl::Minutes(1),
       .run = [&](absl::Time deadline) { return CheckFacts(tools, machine, deadline); },
       .is_needed = true},
      {.name = "kernels",
       .title = "our kernels against ATen",
       .limit = absl::Minutes(3),
       .run = [&](absl::Time deadline) { return CheckKernels(tools, deadline); }},
      {.name = "log_probs",
       .title = "trainer against rollout",
       .limit = absl::Minutes(2),
       .run = [&](absl::Time deadline) { return CheckLogProbs(tools, deadline); }},
      {.name = "sampling",
       .title = "sampled tokens, GPU and CPU",
       .limit = absl::Minutes(2),
       .run = [&](absl::Time deadline) { return CheckSampling(tools, deadline); }},
      {.name = "rates",
       .title = "measured limits",
       .limit = absl::Minutes(1),
       .run = [&](absl::Time deadline) { return CheckRates(tools, machine, deadline); }},
      {.name = "training",
       .title = "training",
       .limit = absl::Minutes(2),
       .run = [&](absl::Time deadline) { return CheckTraining(tools, machine, deadline); }},
      {.name = "decoding",
       .title = "decoding",
       .limit = absl::Minutes(3),
       .run = [&](absl::Time deadline) { return CheckDecoding(tools, machine, deadline); }},
      {.name = "updates",
       .title = "weight updates",
       .limit = absl::Minutes(2),
       .run = [&](absl::Time deadline) { return CheckUpdates(tools, machine, deadline); }},
      {.name = "lost_rank",
       .title = "a killed rank",
       .limit = absl::Minutes(1),
       .run = [&](absl::Time deadline) { return CheckLostRank(tools, machine, deadline); }}};
  checks.push_back({.name = "sanitizer",
                    .title = "compute-sanitizer",
                    .limit = absl::Minutes(30),
                    .run = [&](absl::Time deadline) { return CheckSanitizer(tools, deadline); }});
  std::erase_if(checks, [&](const Check& check) {
    if (check.is_needed) return false;
    if (selection.only.empty()) return check.name == "sanitizer" && !selection.full;
    return !absl::c_linear_search(selection.only, check.name);
  });
  return checks;
}

std::vector<std::string> CheckNames() {
  const Tools tools;
  Machine machine;
  std::vector<std::string> names;
  for (const Check& check : AllChecks(tools, machine, {.full = true, .only = {}})) {
    names.push_back(check.name);
  }
  return names;
}

}  // namespace tandem::gpu_check
