// Raw collectives, the baseline for an update's speed: the same bytes and buckets, preallocated
// buffers, back to back, without packing, unpacking, digests or our own overlap.
#ifndef TANDEM_TOOLS_TANDEM_BENCH_RAW_BASELINE_H_
#define TANDEM_TOOLS_TANDEM_BENCH_RAW_BASELINE_H_

#include "absl/status/statusor.h"
#include "common/comm/process_group.h"
#include "common/weights/bucket_plan.h"

namespace tandem::bench {

// Returns the median seconds of `repeats` rounds. Each round gathers every bucket to rank 0 of
// `trainer_group` in equal parts, then broadcasts every bucket from rank 0 of `update_group`. All
// ranks of both groups call it at the same time, on their collective threads; a rank in only one
// group passes null for the other. `device`: where the groups need the buffers. Each rank returns
// its own clock's time; only the leader's covers the full update.
absl::StatusOr<double> MeasureRawTransfer(const weights::TransferPlan& plan,
                                          comm::ProcessGroup* trainer_group,
                                          comm::ProcessGroup* update_group, int repeats,
                                          at::Device device = at::kCPU);

// The same for a chain: bucket b goes from rank b % trainer_ranks of the group to rank
// trainer_ranks, then from rank to rank; each forwards it on arrival. All ranks call it. `barrier`:
// a group of the same ranks, or `group` itself if it has collectives. `shareable`: the buffers use
// the same kind of memory as an update's bytes (comm/shareable_memory.h).
absl::StatusOr<double> MeasureRawChain(const weights::TransferPlan& plan, comm::ProcessGroup& group,
                                       comm::ProcessGroup& barrier, int trainer_ranks, int repeats,
                                       bool shareable);

}  // namespace tandem::bench

#endif  // TANDEM_TOOLS_TANDEM_BENCH_RAW_BASELINE_H_
