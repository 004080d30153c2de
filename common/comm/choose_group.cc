#include "common/comm/choose_group.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/comm/check_tensors.h"
#include "common/comm/device_memory_group.h"
#include "common/comm/device_sharing.h"
#include "common/comm/local_links.h"
#include "common/comm/process_group.h"
#include "common/comm/shared_message_group.h"
#include "common/comm/shared_segment.h"
#include "common/comm/store_connection.h"
#include "common/status/status_macros.h"

namespace tandem::comm {
namespace {

std::string PlaceKey(int rank) { return absl::StrCat("place/", rank); }

// Where memory is shared with ranks that say the same; empty where this rank shares none.
std::string HostPlace(const GroupOptions& options) {
  const bool able = options.size <= kMaxLocalRanks && SharedSegment::Check().ok();
  return able ? LocalLinks::Place() : "";
}

// Where there are sockets to ranks that say the same.
std::string SocketPlace(const GroupOptions&) { return LocalLinks::Place(); }

// Whether all ranks are in one place. Every rank says where it is and hears it of all others, so
// that all come to the same answer.
absl::StatusOr<bool> Together(const GroupOptions& options, std::string place) {
  const absl::Time deadline = absl::Now() + options.timeout;
  const Cancelled cancelled = [cancel = options.cancel] {
    return cancel != nullptr && cancel->HasBeenNotified();
  };
  // Of one that cannot, a place where nobody else is.
  if (place.empty()) place = absl::StrCat("rank ", options.rank);
  ASSIGN_OR_RETURN(auto store, StoreConnection::Open(options.rendezvous, deadline, cancelled));
  RETURN_IF_ERROR(store->Set(PlaceKey(options.rank), place, deadline));
  bool together = true;
  for (int peer = 0; peer < options.size; ++peer) {
    RETURN_IF_ERROR(store->WaitFor(PlaceKey(peer), deadline, cancelled));
    ASSIGN_OR_RETURN(const std::string found, store->Read(PlaceKey(peer), deadline, cancelled));
    together = together && found == place;
  }
  return together;
}

// By `within` where all ranks are in one place, else by `otherwise`. `place`: this rank's, or
// empty.
absl::StatusOr<std::unique_ptr<ProcessGroup>> CreateHostGroup(
    const GroupOptions& options, std::string (*place)(const GroupOptions& options),
    absl::StatusOr<std::unique_ptr<ProcessGroup>> (*within)(const GroupOptions&),
    absl::StatusOr<std::unique_ptr<ProcessGroup>> (*otherwise)(const GroupOptions&)) {
  RETURN_IF_ERROR(CheckGroup(options));
  if (options.size == 1) return otherwise(options);
  const absl::StatusOr<bool> together = Together(options, place == nullptr ? "" : place(options));
  if (!together.ok()) return RendezvousError(options, together.status());
  return *together ? within(options) : otherwise(options);
}

absl::StatusOr<std::unique_ptr<ProcessGroup>> CreateGroupOfOneDevice(const GroupOptions& options) {
  RETURN_IF_ERROR(CheckGroup(options));
  if (options.size == 1) return CreateNcclGroup(options);
  ASSIGN_OR_RETURN(auto sharing, CreateCudaSharing());
  std::string place = HostPlace(options);
  if (!place.empty()) absl::StrAppend(&place, ", ", sharing->Place());
  const absl::StatusOr<bool> together = Together(options, std::move(place));
  if (!together.ok()) return RendezvousError(options, together.status());
  return *together ? CreateDeviceMemoryGroup(options, std::move(sharing))
                   : CreateNcclGroup(options);
}

}  // namespace

absl::StatusOr<std::unique_ptr<ProcessGroup>> CreateProcessGroup(const GroupOptions& options,
                                                                 c10::Device device,
                                                                 bool allow_shared_memory) {
  if (device.is_cuda()) return CreateNcclGroup(options);
  return CreateHostGroup(options, allow_shared_memory ? &HostPlace : nullptr,
                         &CreateSharedMemoryGroup, &CreateGlooGroup);
}

absl::Status CheckBackend(absl::string_view backend) {
  for (const absl::string_view known :
       {"gloo", "nccl", "shared_memory", "cuda_ipc", "socket", "local_socket", "messages"}) {
    if (backend == known) return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("expected gloo, nccl, shared_memory, cuda_ipc, socket, local_socket or "
                   "messages, found '",
                   backend, "'"));
}

absl::StatusOr<std::unique_ptr<ProcessGroup>> CreateGroupOf(absl::string_view backend,
                                                            const GroupOptions& options) {
  if (backend == "nccl") return CreateNcclGroup(options);
  if (backend == "cuda_ipc") return CreateGroupOfOneDevice(options);
  if (backend == "gloo") return CreateGlooGroup(options);
  if (backend == "socket") return CreateSocketGroup(options);
  if (backend == "shared_memory") {
    return CreateHostGroup(options, &HostPlace, &CreateSharedMemoryGroup, &CreateGlooGroup);
  }
  if (backend == "messages") {
    return CreateHostGroup(options, &HostPlace, &CreateSharedMessageGroup, &CreateSocketGroup);
  }
  if (backend == "local_socket") {
    return CreateHostGroup(options, &SocketPlace, &CreateLocalSocketGroup, &CreateSocketGroup);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("group ", options.name, ": backend: ", CheckBackend(backend).message()));
}

}  // namespace tandem::comm
