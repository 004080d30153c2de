// Who computes which sequences, and in which micro-batch.
#ifndef TANDEM_SERVICES_TRAINER_DATA_MICRO_BATCH_PLAN_H_
#define TANDEM_SERVICES_TRAINER_DATA_MICRO_BATCH_PLAN_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace tandem::trainer {

// plan[rank][micro_batch] lists indices into the lengths, ascending. Every rank has the same number
// of micro-batches, at least one; some may be empty.
using MicroBatchPlan = std::vector<std::vector<std::vector<int64_t>>>;

// Spreads sequences over the ranks so that each gets about the same number of tokens, then over as
// few micro-batches as hold at most `max_tokens` each; a longer sequence is a micro-batch of its
// own. Sequences of length 0 are left out. The same arguments give the same plan on every rank: it
// follows from them alone.
// groups: none, or the group of each sequence. Neighbours of one group then stay together, as far
// as the limit and the balance between ranks allow, for what they share may be computed once.
MicroBatchPlan PlanMicroBatches(absl::Span<const int64_t> lengths, int num_ranks,
                                int64_t max_tokens, absl::Span<const int64_t> groups = {});

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_DATA_MICRO_BATCH_PLAN_H_
