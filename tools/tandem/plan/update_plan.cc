#include "tools/tandem/plan/update_plan.h"

#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/host/process_memory.h"
#include "common/rank_setup/unit_limits.h"
#include "common/status/status_macros.h"
#include "common/weights/reshard_check.h"
#include "common/weights/split_wants.h"
#include "tools/tandem/plan/model_shape.h"

namespace tandem::plan {
namespace {

constexpr int64_t kMostRanks = int64_t{1} << 16;
constexpr int64_t kMostBucketBytes = int64_t{4} << 30;

absl::Status CheckCount(const char* flag, int64_t count, int64_t most) {
  if (count >= 1 && count <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(flag, " ", count, ": expected 1 to ", most));
}

absl::Status CheckDivides(const char* flag, int64_t ranks, absl::string_view what,
                          int64_t divisor) {
  if (ranks % divisor == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(flag, " ", ranks, ": expected a multiple of ", what, ", which is ", divisor));
}

absl::StatusOr<int64_t> ElementBytes(const std::string& dtype) {
  static const auto& sizes =
      *new std::map<std::string, int64_t>{{"bfloat16", 2}, {"float16", 2}, {"float32", 4}};
  const auto found = sizes.find(dtype);
  if (found != sizes.end()) return found->second;
  return absl::InvalidArgumentError(
      absl::StrCat("--dtype ", dtype, ": expected bfloat16, float16 or float32"));
}

absl::Status CheckRequest(const UpdatePlanRequest& request) {
  RETURN_IF_ERROR(CheckCount("--trainer-ranks", request.trainer_ranks, kMostRanks));
  RETURN_IF_ERROR(CheckCount("--rollout-ranks", request.rollout_ranks, kMostRanks));
  RETURN_IF_ERROR(
      CheckCount("--tensor-model-parallel-size", request.rollout_tensor_parallel, kMostRanks));
  RETURN_IF_ERROR(
      CheckCount("--trainer-tensor-parallel", request.trainer_tensor_parallel, kMostRanks));
  RETURN_IF_ERROR(CheckCount("--dp-replicate", request.dp_replicate, kMostRanks));
  RETURN_IF_ERROR(
      CheckCount("--bucket-megabytes", request.bucket_bytes >> 20, kMostBucketBytes >> 20));
  if (!(request.density >= 0 && request.density <= 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--density ", request.density, ": expected 0 to 1"));
  }
  RETURN_IF_ERROR(CheckDivides("--trainer-ranks", request.trainer_ranks,
                               "--trainer-tensor-parallel x --dp-replicate",
                               request.trainer_tensor_parallel * request.dp_replicate));
  return CheckDivides("--rollout-ranks", request.rollout_ranks, "--tensor-model-parallel-size",
                      request.rollout_tensor_parallel);
}

// The layouts of both sides.
struct Layouts {
  weights::ModelLayout trainer, rollout;
};

absl::StatusOr<Layouts> LayoutsOf(const UpdatePlanRequest& request, const comm::MeshShape& mesh,
                                  int64_t element_bytes) {
  const int rollout_tp = static_cast<int>(request.rollout_tensor_parallel);
  Layouts out;
  const absl::StatusOr<model::ModelSpec> spec =
      FindModelShape(request.model_shape, "--model-shape");
  if (!spec.ok()) return spec.status();
  const model::UnitLimits limits = setup::UnitLimitsOf({}, *spec, mesh, element_bytes);
  ASSIGN_OR_RETURN(out.trainer, weights::LayoutOf(*spec, limits, mesh.tp));
  ASSIGN_OR_RETURN(out.rollout, weights::LayoutOf(*spec, {}, rollout_tp));
  return out;
}

absl::Status CheckHosts(const UpdatePlanRequest& request, const Hardware& hardware) {
  const auto hosts = [&](int64_t ranks) {
    return (ranks + hardware.per_host - 1) / hardware.per_host;
  };
  const int64_t needed = hosts(request.trainer_ranks) + hosts(request.rollout_ranks);
  if (hardware.hosts == 1 || hardware.hosts >= needed) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "--hardware ", request.hardware, ": these ranks need ", needed, " hosts of ",
      hardware.per_host, "; name as many, or only the accelerators of one host (h100x8)"));
}

}  // namespace

weights::Network NetworkOf(const Hardware& hardware) {
  weights::Network network;
  network.ranks_per_host = hardware.per_host;
  network.nics_per_host = hardware.is_gpu ? hardware.per_host : 1;
  network.rails = hardware.is_gpu;
  network.nic = hardware.inter_host;
  network.local = hardware.intra_host;
  network.latency = hardware.is_gpu ? 20e-6 : 50e-6;
  network.pack = network.unpack = hardware.is_gpu ? 1e12 : 4e9;
  return network;
}

weights::DeltaCost DeltaCostOf(const Hardware& hardware, double density, int64_t element_bytes) {
  weights::DeltaCost cost;
  cost.density = density;
  cost.bytes_per_changed = static_cast<double>(element_bytes) + 1;  // and the distance to it
  cost.encode = hardware.is_gpu ? 400e9 : 2e9;
  cost.decode = hardware.is_gpu ? 100e9 : 1e9;
  return cost;
}

absl::StatusOr<UpdatePlan> MakeUpdatePlan(const UpdatePlanRequest& request) {
  RETURN_IF_ERROR(CheckRequest(request));
  ASSIGN_OR_RETURN(const int64_t element_bytes, ElementBytes(request.dtype));
  UpdatePlan out;
  ASSIGN_OR_RETURN(out.hardware, ParseHardware(request.hardware));
  RETURN_IF_ERROR(CheckHosts(request, out.hardware));
  out.mesh.tp = static_cast<int>(request.trainer_tensor_parallel);
  out.mesh.dp_replicate = static_cast<int>(request.dp_replicate);
  out.mesh.dp_shard = static_cast<int>(request.trainer_ranks / request.trainer_tensor_parallel /
                                       request.dp_replicate);

  const absl::Time start = absl::Now();
  ASSIGN_OR_RETURN(const Layouts layouts, LayoutsOf(request, out.mesh, element_bytes));
  out.parameters = layouts.trainer.elements();
  out.model_bytes = out.parameters * element_bytes;
  const weights::Holdings trainer = weights::TrainerHoldings(layouts.trainer, out.mesh);
  const int replica_ranks = static_cast<int>(request.rollout_tensor_parallel);
  std::map<int, weights::Holdings> rollout;
  rollout[replica_ranks] = weights::RolloutHoldings(layouts.rollout);
  ASSIGN_OR_RETURN(
      out.fleet,
      weights::MakeFleetPlan(
          trainer, rollout, std::vector<int>(request.rollout_ranks / replica_ranks, replica_ranks),
          {.element_bytes = element_bytes, .bucket_bytes = request.bucket_bytes}));
  out.seconds = absl::ToDoubleSeconds(absl::Now() - start);
  out.rss_bytes = host::PeakResidentBytes();

  const absl::Time check_start = absl::Now();
  const weights::SplitWants wants = weights::SplitWantsOf(rollout[replica_ranks]);
  RETURN_IF_ERROR(weights::CheckCoverage(*out.fleet.feed, trainer, wants.first));
  RETURN_IF_ERROR(
      weights::CheckCoverage(*out.fleet.exchanges.at(replica_ranks), wants.first, wants.rest));
  out.check_seconds = absl::ToDoubleSeconds(absl::Now() - check_start);

  const weights::Network network = NetworkOf(out.hardware);
  out.broadcast =
      weights::PredictBroadcast(out.fleet, network, out.model_bytes, request.bucket_bytes);
  out.reshard = weights::PredictReshard(out.fleet, network);
  out.delta = weights::PredictDelta(out.fleet, network,
                                    DeltaCostOf(out.hardware, request.density, element_bytes));
  return out;
}

}  // namespace tandem::plan
