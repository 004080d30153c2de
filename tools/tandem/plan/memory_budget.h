// Divides memory among processes: how much a trainer rank may use.
#ifndef TANDEM_TOOLS_TANDEM_PLAN_MEMORY_BUDGET_H_
#define TANDEM_TOOLS_TANDEM_PLAN_MEMORY_BUDGET_H_

#include <cstdint>
#include <string>

#include "common/config/place.h"
#include "tandem/config/v1/run_config.pb.h"
#include "tools/tandem/plan/hardware.h"
#include "tools/tandem/plan/rollout_memory.h"

namespace tandem::plan {

struct MemoryBudget {
  int64_t rank_bytes = 0;       // for the tensors of one trainer rank
  int64_t rollout_bytes = 0;    // for one rollout rank; 0: no rollouts
  int64_t process_bytes = 0;    // memory of a process besides its tensors
  bool shared = false;          // rollouts and trainer ranks are on the same accelerators or hosts
  int64_t rollouts_beside = 0;  // rollout ranks that share one trainer rank's, or host's, memory
  std::string problem;          // "KEY: what does not fit"; empty if everything fits
};

// On GPUs rollouts have their own accelerators if there are enough for both; otherwise each shares
// one with a trainer rank. Without GPUs all processes of a host share its memory.
// trainer.memory_megabytes, if set, overrides a rank's share.
MemoryBudget BudgetOf(const config::v1::RunConfig& config, const Hardware& hardware,
                      const RolloutMemory& rollout, bool with_rollouts);

// Returns "PLACE: KEY: problem" for a message that begins with a key that some place sets.
std::string WithPlace(const config::Places& places, const std::string& message);

// "79.6 GiB", "512.0 MiB".
std::string FormatBytes(int64_t bytes);

}  // namespace tandem::plan

#endif  // TANDEM_TOOLS_TANDEM_PLAN_MEMORY_BUDGET_H_
