// Between a step as the scheduler planned it and the order by which the other ranks compute it.
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

// What the runner is to compute, in `order`. `block_size`: tokens of a block of the cache.
void WriteStep(absl::Span<const RunItem> items,
               absl::Span<const std::pair<int32_t, int32_t>> block_copies, int64_t block_size,
               v1::StepOrder& order);

// A step as another rank has it: what WriteStep() was given, as far as the runner reads it.
class StepMirror {
 public:
  // INTERNAL where the order does not hold together, or reaches beyond `num_blocks`.
  absl::Status Read(const v1::StepOrder& order, int64_t block_size, int64_t num_blocks);

  absl::Span<const RunItem> items() const { return items_; }
  absl::Span<const std::pair<int32_t, int32_t>> block_copies() const { return block_copies_; }

 private:
  std::vector<Sequence> sequences_;  // kept for their memory
  std::vector<RunItem> items_;
  std::vector<std::pair<int32_t, int32_t>> block_copies_;
};

}  // namespace tandem::rollout

#endif  // TANDEM_SERVICES_ROLLOUT_RANKS_STEP_ORDER_H_
