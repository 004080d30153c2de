// Finds the link that caused a failed transfer from the reports of the update's ranks.
//
//   for (const TransferReport& report : Unreached(reports)) ...   // they are the cause
//   // Without any: the replica whose incoming link broke first.
//   const std::optional<int> replica = BrokenLinkOfChain(reports, num_replicas);
//
// A broken link in a chain ends the transfers on both sides. The feeder reports its link `forward`
// and leaves its own feeder, which then does the same; the fed replica reports its link `from`, as
// do those behind it. The cause is where the reports change from one to the other.
#ifndef TANDEM_SERVICES_TRAINER_PUBLISH_TRANSFER_BLAME_H_
#define TANDEM_SERVICES_TRAINER_PUBLISH_TRANSFER_BLAME_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace tandem::trainer {

// Why a live rank ended its transfer.
struct TransferReport {
  enum class Link { kUnknown, kRendezvous, kFrom, kForward, kOwn };
  int replica = 0;
  int rank = 0;
  Link link = Link::kUnknown;
  bool joined = false;     // the link's group had been created
  bool timed_out = false;  // it waited until its deadline; nobody ended the wait
  // The leader had already ended the transfer: the report may be a consequence.
  bool after_abort = false;
};

// Parses the report in a TRANSFER_FAILED from VerifyUpdate; nullopt for any other status.
std::optional<TransferReport> ParseTransferReport(const absl::Status& status);

// The ranks that never reached the rendezvous.
std::vector<TransferReport> Unreached(const std::vector<TransferReport>& reports);

// Number of the replica that the broken link feeds; the one before it, or the trainer, feeds it.
// `reports` are in order of arrival, and all ranks reached the rendezvous.
std::optional<int> BrokenLinkOfChain(const std::vector<TransferReport>& reports, int num_replicas);

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_PUBLISH_TRANSFER_BLAME_H_
