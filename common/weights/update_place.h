// Where a rank keeps the bytes of weight updates, and the backend that suits the places of all ranks
// of an update.
//
//   ASSIGN_OR_RETURN(places.emplace_back(), PlaceOf(device));
//   rendezvous.set_backend(ChooseBackend(backends, places, security::DataPlaneOfProcess()));
#ifndef TANDEM_COMMON_WEIGHTS_UPDATE_PLACE_H_
#define TANDEM_COMMON_WEIGHTS_UPDATE_PLACE_H_

#include <c10/core/Device.h>

#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/security/data_plane.h"
#include "tandem/common/v1/weights.pb.h"

namespace tandem::weights {

// This process's place for bytes on `device`, the CPU or a CUDA device. Errors: those of
// comm::IdOfGpu().
absl::StatusOr<common::v1::UpdatePlace> PlaceOf(c10::Device device);

struct UpdateBackends {
  std::string host;  // of groups in host memory
  // Whether ranks of one host may read each other's memory.
  bool shares_memory = true;
};

// Returns the backend (GroupRendezvous.backend) of the groups of an update:
//   cuda_ipc        all bytes lie in one GPU's memory, and its ranks may share memory
//   nccl            each rank's lie in memory of a GPU of its own
//   backends.host   otherwise: some are in host memory, or two ranks of several use one GPU, which NCCL
//                   refuses; or links between hosts must be encrypted, which NCCL cannot do
// Ranks with bytes on a GPU then copy them through host memory (comm/host_staging_group.h).
std::string ChooseBackend(const UpdateBackends& backends,
                          absl::Span<const common::v1::UpdatePlace> places,
                          const security::DataPlaneSecurity& plane);

}  // namespace tandem::weights

#endif  // TANDEM_COMMON_WEIGHTS_UPDATE_PLACE_H_
