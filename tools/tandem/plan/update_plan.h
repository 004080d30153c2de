// UpdatePlan: the weight update of a run that may be far larger than this machine: the real
// transfer plan, and the predicted time on described hardware.
#ifndef TANDEM_TOOLS_TANDEM_PLAN_UPDATE_PLAN_H_
#define TANDEM_TOOLS_TANDEM_PLAN_UPDATE_PLAN_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/comm/mesh_shape.h"
#include "common/weights/fleet_plan.h"
#include "common/weights/network_model.h"
#include "tools/tandem/plan/hardware.h"

namespace tandem::plan {

struct UpdatePlanRequest {
  std::string model_shape;  // path for FindModelShape()
  int64_t trainer_ranks = 0;
  int64_t trainer_tensor_parallel = 1;
  int64_t dp_replicate = 1;
  int64_t rollout_ranks = 0;
  int64_t rollout_tensor_parallel = 1;
  std::string dtype = "bfloat16";  // on the wire: float32, float16, bfloat16
  int64_t bucket_bytes = int64_t{64} << 20;
  std::string hardware = "h100x8";  // see ParseHardware()
  double density = 0.03;            // share of elements that a delta contains
};

struct UpdatePlan {
  comm::MeshShape mesh;
  int64_t parameters = 0;
  int64_t model_bytes = 0;  // in wire dtype, one copy
  double seconds = 0;       // time to make the transfer plan, holdings included
  int64_t rss_bytes = 0;    // peak of the process, read after making the plan
  double check_seconds = 0;
  weights::FleetPlan fleet;
  Hardware hardware;
  weights::Prediction broadcast, reshard, delta;
};

// INVALID_ARGUMENT or NOT_FOUND names the faulty flag of `tandem bench plan`; INTERNAL if the plan
// fails its check.
absl::StatusOr<UpdatePlan> MakeUpdatePlan(const UpdatePlanRequest& request);

// Returns a machine's network as weights::Network: one NIC per accelerator, on rails; hosts without
// accelerators have one NIC, and cores are not counted. Latencies and copy rates are assumptions:
// 20 us and 1 TB/s for an accelerator's memory; 50 us and 4 GB/s for a process.
weights::Network NetworkOf(const Hardware& hardware);
weights::DeltaCost DeltaCostOf(const Hardware& hardware, double density, int64_t element_bytes);

}  // namespace tandem::plan

#endif  // TANDEM_TOOLS_TANDEM_PLAN_UPDATE_PLAN_H_
