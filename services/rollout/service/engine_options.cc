#include "services/rollout/service/engine_options.h"

#include <algorithm>
#include <string>

#include "common/model/parallel_fit.h"
#include "common/status/status_macros.h"

namespace tandem::rollout {
namespace {

InFlightPolicy FromProto(config::v1::InFlightPolicy policy) {
  switch (policy) {
    case config::v1::IN_FLIGHT_POLICY_ABORT:
      return InFlightPolicy::kAbort;
    case config::v1::IN_FLIGHT_POLICY_WAIT:
      return InFlightPolicy::kWait;
    case config::v1::IN_FLIGHT_POLICY_KEEP_KV:
      return InFlightPolicy::kKeepKv;
    default:
      return InFlightPolicy::kKeepRecompute;
  }
}

// `name` must be validated. If it names no GPU index, each rank of a host gets its own GPU.
at::Device DeviceOf(const std::string& name, int local_rank) {
  if (name.empty() || name == "cpu") return at::kCPU;
  const at::Device device(name);
  if (device.has_index()) return device;
  return at::Device(device.type(), static_cast<at::DeviceIndex>(local_rank));
}

}  // namespace

absl::StatusOr<EngineOptions> MakeEngineOptions(const config::v1::RunConfig& config,
                                                const io::ModelConfig& folder,
                                                const model::ModelSpec& spec, int local_rank) {
  const config::v1::RolloutConfig& rollout = config.rollout();
  const auto ranks = static_cast<int>(rollout.tensor_model_parallel_size());
  RETURN_IF_ERROR(
      model::CheckTensorParallel(spec, std::max(1, ranks), model::KvHeadCopies::kAllowed))
      << "rollout.tensor_model_parallel_size";
  RETURN_IF_ERROR(model::CheckRolloutDevice(spec, rollout.device()));
  EngineOptions options;
  options.model_name = folder.path;
  options.dtype =
      config.model().dtype() == config::v1::ELEMENT_TYPE_FLOAT32 ? at::kFloat : at::kBFloat16;
  options.device = DeviceOf(rollout.device(), ranks > 1 ? local_rank : 0);
  options.forward.graphs = rollout.cuda_graphs();
  options.block_size = rollout.block_size();
  options.kv_cache_bytes = rollout.kv_cache_megabytes() << 20;
  options.scheduler.max_num_seqs = rollout.max_num_seqs();
  options.scheduler.max_num_batched_tokens = rollout.max_num_batched_tokens();
  options.max_model_len = rollout.max_model_len();
  options.in_flight = FromProto(rollout.in_flight());
  for (const int64_t id : folder.eos_token_ids) {
    options.eos_token_ids.push_back(static_cast<int32_t>(id));
  }
  return options;
}

}  // namespace tandem::rollout
