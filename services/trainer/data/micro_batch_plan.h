// Assigns sequences to ranks and micro-batches.
#ifndef TANDEM_SERVICES_TRAINER_DATA_MICRO_BATCH_PLAN_H_
#define TANDEM_SERVICES_TRAINER_DATA_MICRO_BATCH_PLAN_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace tandem::trainer {

// plan[rank][micro_batch] lists indices into the lengths, ascending. Every rank has the same number
// of micro-batches, at least one; some may be empty.
using MicroBatchPlan = std::vector<std::vector<std::vector<int64_t>>>;

// Balances the number of tokens over the ranks, then packs each rank's sequences into as few
// micro-batches of at most `max_tokens` as possible; a longer sequence gets a micro-batch of its
// own. Leaves out sequences of length 0. Deterministic: the same arguments give the same plan on
// every rank.
// `groups`: empty, or the group of each sequence. Neighbours of one group stay together as far as
// the limit and the balance between ranks allow, so that their shared prefix is computed once.
MicroBatchPlan PlanMicroBatches(absl::Span<const int64_t> lengths, int num_ranks,
                                int64_t max_tokens, absl::Span<const int64_t> groups = {});

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_DATA_MICRO_BATCH_PLAN_H_
