// What the ranks of a group tell each other in the rendezvous store before they connect: where they
// run, and what encryption their links shall have. Every rank hears all others, so that all come to
// the same answer.
//
//   ASSIGN_OR_RETURN(const LinkPlan plan, AgreeOnLinks(options, /*place=*/""));
//   if (plan.is_encrypted) return CreateMeshGroup(options, plan);
//
// A rank's entry carries a proof by the group's secret: who stands between a rank and the store
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

// What a rank says of itself.
struct LinkEntry {
  security::DataPlaneSecurity data_plane;
  std::string host;   // ranks that say the same are reached without a network
  std::string place;  // ranks that say the same share memory, or local sockets
};

struct LinkPlan {
  bool within_place = false;    // all ranks are in one place
  bool within_host = false;     // all ranks are on one host
  std::vector<bool> encrypted;  // by rank: whether the link to it is
  bool is_encrypted = false;    // whether any link of the group is
  // OK, or that links between hosts are to be encrypted and some rank does not allow NCCL, which
  // cannot do that: FAILED_PRECONDITION.
  absl::Status nccl;
};

// Exchanges the ranks' entries. `place`: where this rank can meet those of the same place; empty
// where it can meet nobody. Errors: FAILED_PRECONDITION where the ranks' settings differ, or where
// links are to be encrypted and there is no secret to do it by; PERMISSION_DENIED where an entry is
// not proven; those of the store.
absl::StatusOr<LinkPlan> AgreeOnLinks(const GroupOptions& options, std::string place);

// What follows from all ranks' entries, for rank `rank`; `group` begins errors.
absl::StatusOr<LinkPlan> PlanLinks(const std::string& group, int rank, bool has_secret,
                                   const std::vector<LinkEntry>& entries);

// Makes TLS links of those that the plan says. `lane`: tells apart links of one group between the
// same ranks; empty where there is one. Both ranks prove the group's secret.
absl::Status EncryptLinks(const GroupOptions& options, const LinkPlan& plan, absl::string_view lane,
                          std::vector<SocketLink>& links, absl::Time deadline,
                          const Cancelled& cancelled);

// Connects to every other rank over TCP and encrypts as the plan says. By rank; the own link is not
// open.
absl::StatusOr<std::vector<SocketLink>> ConnectLinks(const GroupOptions& options,
                                                     const LinkPlan& plan, absl::string_view lane,
                                                     absl::Time deadline,
                                                     const Cancelled& cancelled);

}  // namespace tandem::comm

#endif  // TANDEM_COMMON_COMM_LINK_AGREEMENT_H_
