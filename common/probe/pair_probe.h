// The first part of a group probe: every rank connects to every other, over the addresses that the
// data of a weight update would take, and times small messages.
#ifndef TANDEM_COMMON_PROBE_PAIR_PROBE_H_
#define TANDEM_COMMON_PROBE_PAIR_PROBE_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "common/comm/process_group.h"
#include "tandem/diagnostics/v1/diagnostics_service.pb.h"

namespace tandem::probe {

struct PairProbeOptions {
  comm::Rendezvous rendezvous;
  int rank = 0;
  int size = 2;
  absl::Time deadline;
  const absl::Notification* cancel = nullptr;  // may be null
};

// Fills in address and pairs of `out`. Returns whether every pair of the group could exchange
// messages: the same value on every rank that gets a result. Blocks until all ranks are done.
// Errors are those of the rendezvous.
absl::StatusOr<bool> ProbePairs(const PairProbeOptions& options, diagnostics::v1::RankProbe& out);

}  // namespace tandem::probe

#endif  // TANDEM_COMMON_PROBE_PAIR_PROBE_H_
