// One rank's part in the probe of a group: pairs first, then reductions whose sums are known.
#ifndef TANDEM_COMMON_PROBE_GROUP_PROBE_H_
#define TANDEM_COMMON_PROBE_GROUP_PROBE_H_

#include "absl/status/status.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "tandem/diagnostics/v1/diagnostics_service.pb.h"

namespace tandem::probe {

inline constexpr int kMaxProbeRanks = 1024;
inline constexpr int kMaxProbeSizes = 8;
inline constexpr int64_t kMaxProbeBytes = int64_t{1} << 30;
inline constexpr absl::Duration kMaxProbeTime = absl::Minutes(2);

// INVALID_ARGUMENT, with the field, for what a process refuses.
absl::Status CheckProbeRequest(const diagnostics::v1::ProbeGroupRequest& request);

// The request is one that CheckProbeRequest() passes, and names a rendezvous. Takes part as rank
// `rank`; blocks, at most until `deadline` and what a group takes to be left. What goes wrong
// stands in the answer. An "nccl" group is made on the current CUDA device, otherwise tensors are
// the CPU's.
diagnostics::v1::RankProbe ProbeAsRank(const diagnostics::v1::ProbeGroupRequest& request, int rank,
                                       absl::Time deadline, const absl::Notification* cancel);

}  // namespace tandem::probe

#endif  // TANDEM_COMMON_PROBE_GROUP_PROBE_H_
