// What the ranks of an update say once its transfer has failed, and which link that makes the
// cause.
//
//   TransferBlame blame = FindBlame(reports, /*chained=*/true, num_replicas);
//   // blame.unreached: ranks that never reached the rendezvous; they are the cause
//   // blame.broken_link: else, the replica whose incoming link broke first
//
// In a chain a link that breaks ends those next to it: whoever feeds it reports its link `forward`
// and breaks off from who feeds him, who does so in turn; whoever is fed by it reports its link
// `from`, and so do those behind. The cause is where the reports change from one to the other.
#ifndef TANDEM_SERVICES_TRAINER_PUBLISH_TRANSFER_BLAME_H_
#define TANDEM_SERVICES_TRAINER_PUBLISH_TRANSFER_BLAME_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace tandem::trainer {

// Why a rank that lives has ended its transfer.
struct TransferReport {
  enum class Link { kUnknown, kRendezvous, kFrom, kForward, kOwn };
  int replica = 0;
  int rank = 0;
  Link link = Link::kUnknown;
  bool joined = false;     // whether the link's group had been made
  bool timed_out = false;  // it waited until its deadline: nobody ended that
  // Whether the leader had ended the transfer by then: what it reports may be the consequence.
  bool after_abort = false;
};

// The report in a TRANSFER_FAILED, as VerifyUpdate answers it; nullopt for any other status.
std::optional<TransferReport> ParseTransferReport(const absl::Status& status);

struct TransferBlame {
  std::vector<TransferReport> unreached;
  // Number of the replica that the link feeds; the one before it, or the trainer, feeds it.
  std::optional<int> broken_link;
};

// `reports` in the order in which they came. Where the update is no chain all are in one group, and
// no link can be told from another unless there is but one replica.
TransferBlame FindBlame(const std::vector<TransferReport>& reports, bool chained, int num_replicas);

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_PUBLISH_TRANSFER_BLAME_H_
