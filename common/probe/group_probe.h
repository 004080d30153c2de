// One rank's part in a group probe: pairs first, then reductions whose sums are known.
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

// INVALID_ARGUMENT, with the field, for a request that a process refuses.
absl::Status CheckProbeRequest(const diagnostics::v1::ProbeGroupRequest& request);

// Takes part as rank `rank`. CheckProbeRequest() must pass the request, which names a rendezvous.
// Blocks until `deadline` at most, plus the time to leave a group. The result reports errors. An
// "nccl" group uses the current CUDA device; other groups use CPU tensors.
diagnostics::v1::RankProbe ProbeAsRank(const diagnostics::v1::ProbeGroupRequest& request, int rank,
                                       absl::Time deadline, const absl::Notification* cancel);

}  // namespace tandem::probe

#endif  // TANDEM_COMMON_PROBE_GROUP_PROBE_H_
