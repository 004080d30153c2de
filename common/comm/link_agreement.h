// Before they connect, the ranks of a group exchange through the rendezvous store where they run
// and how their links must be encrypted. Every rank reads all entries, so all reach the same plan.
//
//   ASSIGN_OR_RETURN(const LinkPlan plan, AgreeOnLinks(options, /*place=*/""));
//   if (plan.is_encrypted) return CreateMeshGroup(options, plan);
//
// The group's secret authenticates each entry: a man in the middle between a rank and the store
// cannot make two hosts look like one, whose links would be plaintext.
#ifndef TANDEM_COMMON_COMM_LINK_AGREEMENT_H_
#define TANDEM_COMMON_COMM_LINK_AGREEMENT_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/comm/process_group.h"
#include "common/comm/socket_link.h"
#include "common/comm/store_connection.h"
#include "common/security/data_plane.h"

namespace tandem::comm {

// What a rank publishes about itself.
struct LinkEntry {
  security::DataPlaneSecurity data_plane;
  std::string host;   // ranks with equal values reach each other without a network
  std::string place;  // ranks with equal values can share memory or local sockets
};

struct LinkPlan {
  bool within_place = false;    // all ranks are in one place
  bool within_host = false;     // all ranks are on one host
  std::vector<bool> encrypted;  // by rank: whether the link to it is encrypted
  bool is_encrypted = false;    // whether any link of the group is encrypted
  // FAILED_PRECONDITION if links between hosts must be encrypted, which NCCL cannot do, and some
  // rank does not allow plaintext NCCL.
  absl::Status nccl;
};

// Exchanges the ranks' entries. `place`: see LinkEntry; empty if this rank can share with nobody.
// Errors: FAILED_PRECONDITION if the ranks' settings differ, or if links must be encrypted but the
// group has no secret; PERMISSION_DENIED if an entry's proof is wrong; those of the store.
absl::StatusOr<LinkPlan> AgreeOnLinks(const GroupOptions& options, std::string place);

// Computes the plan of rank `rank` from all ranks' entries; error messages start with `group`.
absl::StatusOr<LinkPlan> PlanLinks(const std::string& group, int rank, bool has_secret,
                                   const std::vector<LinkEntry>& entries);

// Runs the TLS handshake on the links that the plan encrypts; both ranks prove the group's secret.
// `lane` distinguishes a group's several links between the same ranks; empty if there is only one.
absl::Status EncryptLinks(const GroupOptions& options, const LinkPlan& plan, absl::string_view lane,
                          std::vector<SocketLink>& links, absl::Time deadline,
                          const Cancelled& cancelled);

// Connects to every other rank over TCP and encrypts as planned. Returns links by rank; this rank's
// own is not open.
absl::StatusOr<std::vector<SocketLink>> ConnectLinks(const GroupOptions& options,
                                                     const LinkPlan& plan, absl::string_view lane,
                                                     absl::Time deadline,
                                                     const Cancelled& cancelled);

}  // namespace tandem::comm

#endif  // TANDEM_COMMON_COMM_LINK_AGREEMENT_H_
