// Groups that fit where their ranks are: within one host they exchange through its memory.
//
// Before they connect, the ranks compare the encryption that is asked of their links
// (GroupOptions::data_plane). Where links are to be encrypted, those over TCP are TLS, in a group
// whose collectives are made of messages instead of Gloo's (mesh_group.h); NCCL, which sends
// plaintext, is FAILED_PRECONDITION between hosts unless every rank allows it; and ranks that ask
// for different things are FAILED_PRECONDITION, which names them.
#ifndef TANDEM_COMMON_COMM_CHOOSE_GROUP_H_
#define TANDEM_COMMON_COMM_CHOOSE_GROUP_H_

#include <c10/core/Device.h>

#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/comm/process_group.h"

namespace tandem::comm {

// Joins the group that fits: over NCCL where the group's tensors are on a CUDA `device`; through
// shared memory where all ranks run on one host, as one user, and all of them allow it; over Gloo,
// or TLS, otherwise. Every rank of the group is made by this. Errors: as CreateGlooGroup, and those
// above.
absl::StatusOr<std::unique_ptr<ProcessGroup>> CreateProcessGroup(const GroupOptions& options,
                                                                 c10::Device device,
                                                                 bool allow_shared_memory);

// Joins the group that the word `backend` names: gloo; nccl; shared_memory, which is
// CreateProcessGroup() for tensors on the CPU; cuda_ipc, where tensors lie on the current CUDA
// device: through its memory where that is one device and all ranks run on one host, as one user,
// over NCCL otherwise, which wants a device for each rank; and for messages alone socket, which is
// TCP; local_socket, which is the sockets of the host where all ranks run on one, as one user, and
// TCP otherwise; or messages, which is shared memory where that can be and TCP otherwise.
// INVALID_ARGUMENT for another word.
absl::StatusOr<std::unique_ptr<ProcessGroup>> CreateGroupOf(absl::string_view backend,
                                                            const GroupOptions& options);

// INVALID_ARGUMENT, with the words that there are, where CreateGroupOf() has no such one.
absl::Status CheckBackend(absl::string_view backend);

// As CreateGroupOf().
using GroupMaker = std::function<absl::StatusOr<std::unique_ptr<ProcessGroup>>(
    absl::string_view backend, const GroupOptions& options)>;

// Joins a group of ranks of one host that exchange through memory which they share, of a size that
// the number of ranks alone decides: 12 MiB for 2 ranks, some 30 for 3 to 16. Reductions are made
// in the order of the ranks, sums of bfloat16 in float32: every rank gets the same bits.
// Collectives of one tag, type and size meet; where the ranks' differ that is INTERNAL and names
// two that do. Otherwise as CreateGlooGroup.
absl::StatusOr<std::unique_ptr<ProcessGroup>> CreateSharedMemoryGroup(const GroupOptions& options);

// Joins a group whose ranks send each other messages over TCP, a connection for each pair, and that
// has no collectives: those are UNIMPLEMENTED. It is plaintext whatever options.data_plane says:
// CreateGroupOf() handles that. Messages move on the threads that issue them and wait for them, so
// that what has been received is in the core's cache. Who does not know the rendezvous store cannot
// connect. Otherwise as CreateGlooGroup.
absl::StatusOr<std::unique_ptr<ProcessGroup>> CreateSocketGroup(const GroupOptions& options);

// The same over sockets of the host, of ranks that LocalLinks::Place() puts in one place.
absl::StatusOr<std::unique_ptr<ProcessGroup>> CreateLocalSocketGroup(const GroupOptions& options);

}  // namespace tandem::comm

#endif  // TANDEM_COMMON_COMM_CHOOSE_GROUP_H_
