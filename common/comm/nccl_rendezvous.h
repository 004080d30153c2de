// Joins the ranks of an NCCL communicator, and names those that are lost before or while it forms.
#ifndef TANDEM_COMMON_COMM_NCCL_RENDEZVOUS_H_
#define TANDEM_COMMON_COMM_NCCL_RENDEZVOUS_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/comm/nccl_api.h"
#include "common/comm/process_group.h"

namespace tandem::comm {

// Returns when all ranks have joined, at the latest after options.timeout. Every rank reports to
// the rendezvous store before NCCL is entered, and again when its communicator is ready or given
// up. Errors: DEADLINE_EXCEEDED and UNAVAILABLE, which name the ranks that did not report;
// CANCELLED.
absl::StatusOr<NcclCommunicator*> JoinCommunicator(const GroupOptions& options,
                                                   std::shared_ptr<NcclApi> api);

// Key of `rank`'s report in the store: "joined" or "settled".
std::string NcclReportKey(const GroupOptions& options, const char* report, int rank);

}  // namespace tandem::comm

#endif  // TANDEM_COMMON_COMM_NCCL_RENDEZVOUS_H_
