// Groups over our own sockets; the ranks' plan (link_agreement.h) says which links are encrypted.
#ifndef TANDEM_COMMON_COMM_MESH_GROUP_H_
#define TANDEM_COMMON_COMM_MESH_GROUP_H_

#include <memory>

#include "absl/status/statusor.h"
#include "common/comm/link_agreement.h"
#include "common/comm/process_group.h"

namespace tandem::comm {

// Joins a group with two TCP connections between each pair of ranks, one for collectives and one
// for messages, so that neither waits for the other. CPU groups between hosts use it when links are
// encrypted: Gloo's connections are plaintext.
//
// A thread of the group moves the bytes. Reductions run in rank order and sum bfloat16 in float32,
// so every rank gets the same bits. All ranks must call a collective with the same tag, type and
// size; otherwise INTERNAL names both. A rank's traffic is that of a ring: about b for a collective
// of b bytes, 2b for an all-reduce.
//
// In all else like CreateGlooGroup().
absl::StatusOr<std::unique_ptr<ProcessGroup>> CreateMeshGroup(const GroupOptions& options,
                                                              const LinkPlan& plan);

// Like CreateSocketGroup() of choose_group.h, with links encrypted as `plan` says.
absl::StatusOr<std::unique_ptr<ProcessGroup>> CreateSocketGroup(const GroupOptions& options,
                                                                const LinkPlan& plan);

}  // namespace tandem::comm

#endif  // TANDEM_COMMON_COMM_MESH_GROUP_H_
