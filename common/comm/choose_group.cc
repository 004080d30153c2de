#include "common/comm/choose_group.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/comm/check_tensors.h"
#include "common/comm/device_memory_group.h"
#include "common/comm/device_sharing.h"
#include "common/comm/host_staging_group.h"
#include "common/comm/link_agreement.h"
#include "common/comm/local_links.h"
#include "common/comm/mesh_group.h"
#include "common/comm/process_group.h"
#include "common/comm/shared_message_group.h"
#include "common/comm/shared_segment.h"
#include "common/device/device.h"
#include "common/status/status_macros.h"

namespace tandem::comm {
namespace {

// Identifies the host by what is detected and what the caller says; empty if it is unknown.
std::string PlaceOf(const GroupOptions& options) {
  const std::string place = LocalLinks::Place();
  return place.empty() ? "" : absl::StrCat(place, " ", options.place);
}

// Ranks with equal values can share memory; empty if this rank cannot.
std::string HostPlace(const GroupOptions& options) {
  const bool able = options.size <= kMaxLocalRanks && SharedSegment::Check().ok();
  return able ? PlaceOf(options) : "";
}

// Ranks with equal values can use local sockets; empty if every socket must be encrypted.
std::string SocketPlace(const GroupOptions& options) {
  const bool able = options.data_plane.encryption != security::DataPlaneEncryption::kAlways;
  return able ? PlaceOf(options) : "";
}

// Joins a group for CPU tensors between hosts, or within one if local sockets do not suffice.
// Encrypted links need the mesh group: Gloo's connections are plaintext.
absl::StatusOr<std::unique_ptr<ProcessGroup>> CreateNetworkGroup(const GroupOptions& options,
                                                                 const LinkPlan& plan) {
  return plan.is_encrypted ? CreateMeshGroup(options, plan) : CreateGlooGroup(options);
}

absl::StatusOr<std::unique_ptr<ProcessGroup>> CreateCheckedNcclGroup(const GroupOptions& options,
                                                                     const LinkPlan& plan) {
  RETURN_IF_ERROR(plan.nccl);
  return CreateNcclGroup(options);
}

using CreateGroup = absl::StatusOr<std::unique_ptr<ProcessGroup>> (*)(const GroupOptions& options);
using CreatePlannedGroup = absl::StatusOr<std::unique_ptr<ProcessGroup>> (*)(
    const GroupOptions& options, const LinkPlan& plan);

// Creates the group with `within` if all ranks are in one place, else with `otherwise`. `place`:
// this rank's, or empty.
absl::StatusOr<std::unique_ptr<ProcessGroup>> CreateAgreedGroup(const GroupOptions& options,
                                                                std::string place,
                                                                CreateGroup within,
                                                                CreatePlannedGroup otherwise) {
  RETURN_IF_ERROR(CheckGroup(options));
  if (options.size == 1) return otherwise(options, LinkPlan());
  ASSIGN_OR_RETURN(const LinkPlan plan, AgreeOnLinks(options, std::move(place)));
  return plan.within_place && within != nullptr ? within(options) : otherwise(options, plan);
}

absl::StatusOr<std::unique_ptr<ProcessGroup>> CreateGroupOfOneDevice(const GroupOptions& options) {
  RETURN_IF_ERROR(CheckGroup(options));
  if (options.size == 1) return CreateNcclGroup(options);
  ASSIGN_OR_RETURN(auto sharing, CreateCudaSharing());
  std::string place = HostPlace(options);
  if (!place.empty()) absl::StrAppend(&place, ", ", sharing->Place());
  ASSIGN_OR_RETURN(const LinkPlan plan, AgreeOnLinks(options, std::move(place)));
  return plan.within_place ? CreateDeviceMemoryGroup(options, std::move(sharing))
                           : CreateCheckedNcclGroup(options, plan);
}

}  // namespace

absl::StatusOr<std::unique_ptr<ProcessGroup>> CreateProcessGroup(const GroupOptions& options,
                                                                 c10::Device device,
                                                                 bool allow_shared_memory) {
  if (device.is_cuda()) return CreateGroupOf("nccl", options);
  return CreateGroupOf(allow_shared_memory ? "shared_memory" : "gloo", options);
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

bool IsDeviceBackend(absl::string_view backend) {
  return backend == "nccl" || backend == "cuda_ipc";
}

absl::StatusOr<std::unique_ptr<ProcessGroup>> CarryTensorsOf(c10::Device device,
                                                             absl::string_view backend,
                                                             std::unique_ptr<ProcessGroup> group) {
  if (device.is_cpu()) {
    if (!IsDeviceBackend(backend)) return group;
    return absl::InvalidArgumentError(
        absl::StrCat("group ", group->name(), ": backend: '", backend,
                     "' carries tensors in GPU memory; this rank keeps them in host memory"));
  }
  if (IsDeviceBackend(backend)) return group;
  ASSIGN_OR_RETURN(std::shared_ptr<device::Device> found, device::Device::Create(device));
  return StageOnHost(std::move(group), std::move(found));
}

absl::StatusOr<std::unique_ptr<ProcessGroup>> CreateGroupOf(absl::string_view backend,
                                                            const GroupOptions& options) {
  if (backend == "cuda_ipc") return CreateGroupOfOneDevice(options);
  if (backend == "nccl") {
    return CreateAgreedGroup(options, "", nullptr, &CreateCheckedNcclGroup);
  }
  if (backend == "gloo") return CreateAgreedGroup(options, "", nullptr, &CreateNetworkGroup);
  if (backend == "socket") return CreateAgreedGroup(options, "", nullptr, &CreateSocketGroup);
  if (backend == "shared_memory") {
    return CreateAgreedGroup(options, HostPlace(options), &CreateSharedMemoryGroup,
                             &CreateNetworkGroup);
  }
  if (backend == "messages") {
    return CreateAgreedGroup(options, HostPlace(options), &CreateSharedMessageGroup,
                             &CreateSocketGroup);
  }
  if (backend == "local_socket") {
    return CreateAgreedGroup(options, SocketPlace(options), &CreateLocalSocketGroup,
                             &CreateSocketGroup);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("group ", options.name, ": backend: ", CheckBackend(backend).message()));
}

absl::StatusOr<std::unique_ptr<ProcessGroup>> CreateSocketGroup(const GroupOptions& options) {
  return CreateSocketGroup(options, LinkPlan());
}

}  // namespace tandem::comm
