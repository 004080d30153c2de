// Converts between a scheduled step and the order by which the other ranks compute it.
#ifndef TANDEM_SERVICES_ROLLOUT_RANKS_STEP_ORDER_H_
#define TANDEM_SERVICES_ROLLOUT_RANKS_STEP_ORDER_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "services/rollout/runner/model_runner.h"
#include "services/rollout/scheduler/sequence.h"
#include "tandem/rollout/v1/rank_order.pb.h"

namespace tandem::rollout {

// Writes what the runner must compute to `order`. `block_size`: tokens per cache block.
void WriteStep(absl::Span<const RunItem> items,
               absl::Span<const std::pair<int32_t, int32_t>> block_copies, int64_t block_size,
               v1::StepOrder& order);

// A step as read on another rank: WriteStep()'s arguments, as far as the runner needs them.
class StepMirror {
 public:
  // INTERNAL if the order is inconsistent, or refers to blocks beyond `num_blocks`.
  absl::Status Read(const v1::StepOrder& order, int64_t block_size, int64_t num_blocks);

  absl::Span<const RunItem> items() const { return items_; }
  absl::Span<const std::pair<int32_t, int32_t>> block_copies() const { return block_copies_; }

 private:
  std::vector<Sequence> sequences_;  // reused to save allocations
  std::vector<RunItem> items_;
  std::vector<std::pair<int32_t, int32_t>> block_copies_;
};

}  // namespace tandem::rollout

#endif  // TANDEM_SERVICES_ROLLOUT_RANKS_STEP_ORDER_H_
