// Converts between a scheduled step and the order by which the other ranks compute it.
#ifndef TANDEM_SERVICES_ROLLOUT_RANKS_STEP_ORDER_H_
#define TANDEM_SERVICES_ROLLOUT_RANKS_STEP_ORDER_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/model/image_places.h"
#include "services/rollout/runner/model_runner.h"
#include "services/rollout/scheduler/sequence.h"
#include "tandem/rollout/v1/rank_order.pb.h"

namespace tandem::rollout {

// The ranks' KV caches, which have the same blocks.
struct CacheLayout {
  int64_t num_blocks = 0;
  int64_t block_size = 0;                   // tokens per block
  absl::Span<const model::Window> windows;  // of the cache groups (common/model/cache_groups.h)
  int64_t num_states = 0;                   // of linear attention
};

// The rows of images, as every rank has them.
struct RowLayout {
  int64_t width = 0;  // ModelSpec::image_row_size()
  at::ScalarType dtype = at::kFloat;
};

// `cache` must outlive the result.
CacheLayout LayoutOf(const model::PagedKvCache& cache);

// Writes what the runner must compute to `order`.
void WriteStep(absl::Span<const RunItem> items, const CacheCopies& copies, const CacheLayout& cache,
               v1::StepOrder& order);

// A step as read on another rank: WriteStep()'s arguments, as far as the runner needs them.
class StepMirror {
 public:
  // INTERNAL if the order is inconsistent, refers to blocks that the cache does not have, or lacks
  // one that the step reads.
  absl::Status Read(const v1::StepOrder& order, const CacheLayout& cache,
                    const RowLayout& rows = {});

  absl::Span<const RunItem> items() const { return items_; }
  CacheCopies copies() const { return {block_copies_, state_copies_}; }

 private:
  // Gives the sequence its positions, and the item its rows.
  absl::Status ReadImages(const v1::SequenceStep& step, const RowLayout& rows, int i,
                          Sequence& sequence, RunItem& item);

  std::vector<Sequence> sequences_;         // reused to save allocations
  std::vector<model::ImagePlaces> places_;  // of those with images
  std::vector<RunItem> items_;
  std::vector<std::pair<int32_t, int32_t>> block_copies_;
  std::vector<std::pair<int32_t, int32_t>> state_copies_;
};

}  // namespace tandem::rollout

#endif  // TANDEM_SERVICES_ROLLOUT_RANKS_STEP_ORDER_H_
