// Creates the group that suits where its ranks run; within one host, ranks use shared memory.
//
// Before connecting, the ranks compare their encryption settings (GroupOptions::data_plane). If
// links must be encrypted, TCP links use TLS, in a group that builds its collectives from messages
// instead of Gloo's (mesh_group.h). NCCL sends plaintext: between hosts it is FAILED_PRECONDITION
// unless every rank allows it. If the ranks' settings differ, FAILED_PRECONDITION names the ranks.
#ifndef TANDEM_COMMON_COMM_CHOOSE_GROUP_H_
#define TANDEM_COMMON_COMM_CHOOSE_GROUP_H_

#include <c10/core/Device.h>

#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/comm/process_group.h"

namespace tandem::comm {

// Joins a group over NCCL if `device` is a CUDA device; through shared memory if all ranks run on
// one host as one user and all allow it; otherwise over Gloo, or TLS if encrypted. Every rank of
// the group must call this function. Errors: those of CreateGlooGroup() and those above.
absl::StatusOr<std::unique_ptr<ProcessGroup>> CreateProcessGroup(const GroupOptions& options,
                                                                 c10::Device device,
                                                                 bool allow_shared_memory);

// Joins a group of the kind that `backend` names; INVALID_ARGUMENT for any other word:
//   gloo
//   nccl
//   shared_memory  CreateProcessGroup() for CPU tensors
//   cuda_ipc       for tensors on the current CUDA device: through its memory if all ranks share
//                  that device and run on one host as one user; otherwise NCCL, which needs one
//                  device per rank
// Backends for messages only:
//   socket         TCP
//   local_socket   the host's own sockets if all ranks run on one host as one user; otherwise TCP
//   messages       shared memory if possible; otherwise TCP
absl::StatusOr<std::unique_ptr<ProcessGroup>> CreateGroupOf(absl::string_view backend,
                                                            const GroupOptions& options);

// INVALID_ARGUMENT, listing the valid words, if CreateGroupOf() does not know `backend`.
absl::Status CheckBackend(absl::string_view backend);

// Whether groups of this kind carry tensors of a GPU: "nccl" and "cuda_ipc".
bool IsDeviceBackend(absl::string_view backend);

// Lets `group`, of the kind `backend`, carry tensors of `device`: a kind for host memory copies them
// through it (host_staging_group.h). INVALID_ARGUMENT for a kind for GPUs and the CPU.
absl::StatusOr<std::unique_ptr<ProcessGroup>> CarryTensorsOf(c10::Device device,
                                                             absl::string_view backend,
                                                             std::unique_ptr<ProcessGroup> group);

// A function with the contract of CreateGroupOf().
using GroupMaker = std::function<absl::StatusOr<std::unique_ptr<ProcessGroup>>(
    absl::string_view backend, const GroupOptions& options)>;

// Joins a group of ranks on one host that exchange data through shared memory. Its size depends
// only on the number of ranks: 12 MiB for 2 ranks, about 30 MiB for 3 to 16. Reductions run in rank
// order and sum bfloat16 in float32, so every rank gets the same bits. All ranks must call a
// collective with the same tag, type and size; otherwise INTERNAL names two ranks that differ.
// In all else like CreateGlooGroup().
absl::StatusOr<std::unique_ptr<ProcessGroup>> CreateSharedMemoryGroup(const GroupOptions& options);

// Joins a group whose ranks send each other messages over TCP, one connection per pair; collectives
// are UNIMPLEMENTED. Always plaintext, whatever options.data_plane says: CreateGroupOf() handles
// encryption. Messages move on the threads that issue them and wait for them, so that received
// bytes are in the core's cache. Only processes that have read the rendezvous store can connect.
// In all else like CreateGlooGroup().
absl::StatusOr<std::unique_ptr<ProcessGroup>> CreateSocketGroup(const GroupOptions& options);

// Like CreateSocketGroup(), over local sockets, for ranks with the same LocalLinks::Place().
absl::StatusOr<std::unique_ptr<ProcessGroup>> CreateLocalSocketGroup(const GroupOptions& options);

}  // namespace tandem::comm

#endif  // TANDEM_COMMON_COMM_CHOOSE_GROUP_H_
