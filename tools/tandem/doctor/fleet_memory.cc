#include "tools/tandem/doctor/fleet_memory.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tools/tandem/plan/memory_budget.h"

namespace tandem::doctor {
namespace {

using nlohmann::json;
using plan::FormatBytes;

struct Machine {
  std::string hostname;
  int64_t available = 0;  // the most that a process on it may still take
  int64_t needed = 0;
  std::vector<std::string> texts;
  std::vector<std::string> too_large;  // processes that their own control group has no room for
  json processes = json::array();
};

}  // namespace

int64_t TrainerRankBytes(const plan::RunPlan& plan) {
  return plan.needed_bytes() + plan.rank.host_bytes + plan.hardware.reserved_bytes;
}

int64_t RolloutRankBytes(const plan::RunPlan& plan) {
  return plan.rollout.total() + plan.hardware.reserved_bytes;
}

void CheckFleetMemory(const plan::RunPlan& plan, const std::vector<FleetProcess>& processes,
                      Findings& findings) {
  std::map<std::string, Machine> machines;
  for (const FleetProcess& process : processes) {
    const auto& host = process.report.host();
    if (host.has_nccl() || host.available_bytes() == 0) continue;
    Machine& machine = machines[host.machine_id()];
    const int64_t predicted = process.is_trainer ? TrainerRankBytes(plan) : RolloutRankBytes(plan);
    const int64_t held = process.report.resident_bytes();
    const int64_t wanted = std::max<int64_t>(0, predicted - held);
    if (machine.hostname.empty()) machine.hostname = host.hostname();
    machine.available = std::max(machine.available, host.available_bytes());
    machine.needed += wanted;
    machine.texts.push_back(absl::StrCat(process.name(), " will take ", FormatBytes(predicted),
                                         " and holds ", FormatBytes(held)));
    machine.processes.push_back({{"process", process.name()},
                                 {"predicted_bytes", predicted},
                                 {"resident_bytes", held},
                                 {"available_bytes", host.available_bytes()}});
    if (wanted > host.available_bytes()) machine.too_large.push_back(process.name());
  }
  for (auto& [id, machine] : machines) {
    Finding finding;
    finding.what = absl::StrCat("memory of host ", machine.hostname);
    finding.found = absl::StrCat(absl::StrJoin(machine.texts, "; "), "; ",
                                 FormatBytes(machine.available), " are available");
    finding.measured = {{"host", machine.hostname},
                        {"available_bytes", machine.available},
                        {"needed_bytes", machine.needed},
                        {"processes", std::move(machine.processes)}};
    if (!machine.too_large.empty()) {
      finding.severity = Severity::kWarning;
      finding.cure = absl::StrCat("raise the limit of ", absl::StrJoin(machine.too_large, ", "),
                                  " (resources.limits.memory, docker run --memory), or lower its "
                                  "use: tandem train --dry-run prints the parts");
    } else if (machine.needed > machine.available) {
      finding.severity = Severity::kWarning;
      finding.cure =
          "move a process to another host, stop other programs there, or lower memory use: "
          "trainer.max_tokens_per_micro_batch, activation_checkpointing and offload, "
          "rollout.kv_cache_megabytes; tandem train --dry-run prints the parts";
    }
    findings.Add(std::move(finding));
  }
}

}  // namespace tandem::doctor
