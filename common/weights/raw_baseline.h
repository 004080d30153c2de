// The bare collectives that an update is measured against: the same bytes and buckets, prebuilt
// buffers, back to back, nothing packed, unpacked, digested or overlapped by us.
#ifndef TANDEM_COMMON_WEIGHTS_RAW_BASELINE_H_
#define TANDEM_COMMON_WEIGHTS_RAW_BASELINE_H_

#include "absl/status/statusor.h"
#include "common/comm/process_group.h"
#include "common/weights/bucket_plan.h"

namespace tandem::weights {

// Seconds of the median of `repeats` rounds: each gathers every bucket to rank 0 of `trainer_group`
// in equal parts, then broadcasts every bucket from rank 0 of `update_group`. Called by all ranks
// of both groups at once, on their collective threads; a rank of one only passes null for the
// other. `device`: where the buffers are, as the groups want them. Answers the leader's clock on
// the leader, the rank's own elsewhere.
absl::StatusOr<double> MeasureRawTransfer(const TransferPlan& plan,
                                          comm::ProcessGroup* trainer_group,
                                          comm::ProcessGroup* update_group, int repeats,
                                          at::Device device = at::kCPU);

// The same of a chain: bucket b goes from rank b % trainer_ranks of the group to rank
// trainer_ranks, and from there from rank to rank, each passing it on when it has arrived. All
// ranks call it. `barrier`: a group of the same ranks, or the same group where it has collectives.
// `shareable`: the buffers lie where an update's bytes do (comm/shareable_memory.h).
absl::StatusOr<double> MeasureRawChain(const TransferPlan& plan, comm::ProcessGroup& group,
                                       comm::ProcessGroup& barrier, int trainer_ranks, int repeats,
                                       bool shareable);

}  // namespace tandem::weights

#endif  // TANDEM_COMMON_WEIGHTS_RAW_BASELINE_H_
