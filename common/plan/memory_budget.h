// Who shares which memory: how much of it a trainer rank may have.
#ifndef TANDEM_COMMON_PLAN_MEMORY_BUDGET_H_
#define TANDEM_COMMON_PLAN_MEMORY_BUDGET_H_

#include <cstdint>
#include <string>

#include "common/config/place.h"
#include "common/plan/hardware.h"
#include "common/plan/rollout_memory.h"
#include "tandem/config/v1/run_config.pb.h"

namespace tandem::plan {

struct MemoryBudget {
  int64_t rank_bytes = 0;       // for the tensors of one trainer rank
  int64_t rollout_bytes = 0;    // for one rollout rank; 0 where there is none
  int64_t process_bytes = 0;    // that a process takes beside its tensors
  bool shared = false;          // rollouts and trainer ranks are on the same accelerators or hosts
  int64_t rollouts_beside = 0;  // rollout ranks that share what one trainer rank, or host, has
  std::string problem;          // "KEY: what does not fit", empty where all is well
};

// On GPUs a rollout has accelerators of its own where there are enough for both, and shares one
// with a trainer rank otherwise. Without GPUs all processes of a host share its memory.
// trainer.memory_megabytes states a rank's share, whatever else there is.
MemoryBudget BudgetOf(const config::v1::RunConfig& config, const Hardware& hardware,
                      const RolloutMemory& rollout, bool with_rollouts);

// "PLACE: KEY: problem" for a message that begins with a key that was stated somewhere.
std::string WithPlace(const config::Places& places, const std::string& message);

// "79.6 GiB", "512.0 MiB".
std::string FormatBytes(int64_t bytes);

}  // namespace tandem::plan

#endif  // TANDEM_COMMON_PLAN_MEMORY_BUDGET_H_
