#include "common/weights/update_place.h"

#include <set>

#include "common/comm/device_sharing.h"
#include "common/comm/local_links.h"
#include "common/status/status_macros.h"

namespace tandem::weights {

absl::StatusOr<common::v1::UpdatePlace> PlaceOf(c10::Device device) {
  common::v1::UpdatePlace place;
  place.set_host(comm::LocalLinks::Place());
  if (device.is_cpu()) return place;
  ASSIGN_OR_RETURN(*place.mutable_gpu(), comm::IdOfGpu(device));
  return place;
}

std::string ChooseBackend(const UpdateBackends& backends,
                          absl::Span<const common::v1::UpdatePlace> places,
                          const security::DataPlaneSecurity& plane) {
  std::set<std::string> gpus, hosts;
  bool host_is_known = true;
  for (const common::v1::UpdatePlace& place : places) {
    if (place.gpu().empty()) return backends.host;
    gpus.insert(place.gpu());
    hosts.insert(place.host());
    host_is_known = host_is_known && !place.host().empty();
  }
  const bool one_host = hosts.size() == 1 && host_is_known;
  if (gpus.size() == 1 && places.size() > 1) {
    return one_host && backends.shares_memory ? "cuda_ipc" : backends.host;
  }
  if (gpus.size() < places.size()) return backends.host;
  const bool plaintext = plane.encryption == security::DataPlaneEncryption::kNever ||
                         plane.allow_plaintext_nccl ||
                         (one_host && plane.encryption != security::DataPlaneEncryption::kAlways);
  return plaintext ? "nccl" : backends.host;
}

}  // namespace tandem::weights
