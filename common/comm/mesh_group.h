// Groups over our own sockets, whose links are encrypted as the ranks have agreed
// (link_agreement.h).
#ifndef TANDEM_COMMON_COMM_MESH_GROUP_H_
#define TANDEM_COMMON_COMM_MESH_GROUP_H_

#include <memory>

#include "absl/status/statusor.h"
#include "common/comm/link_agreement.h"
#include "common/comm/process_group.h"

namespace tandem::comm {

// A group with collectives and messages over two TCP connections between each pair of ranks, one
// for collectives and one for messages, so that neither waits for the other. It is what CPU groups
// between hosts are made of where links are encrypted: Gloo's connections are plaintext.
//
// A thread of the group moves the bytes. Reductions are made in the order of the ranks, sums of
// bfloat16 in float32: every rank gets the same bits. Collectives of one tag, type and size meet;
// where the ranks' differ that is INTERNAL and names both. A rank's traffic is that of a ring: a
// collective of b bytes costs it about b, a reduction of all 2b.
//
// Otherwise as CreateGlooGroup().
absl::StatusOr<std::unique_ptr<ProcessGroup>> CreateMeshGroup(const GroupOptions& options,
                                                              const LinkPlan& plan);

// CreateSocketGroup() (choose_group.h) after the ranks have agreed.
absl::StatusOr<std::unique_ptr<ProcessGroup>> CreateSocketGroup(const GroupOptions& options,
                                                                const LinkPlan& plan);

}  // namespace tandem::comm

#endif  // TANDEM_COMMON_COMM_MESH_GROUP_H_
