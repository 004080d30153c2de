#include "services/rollout/service/engine_options.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/host/gpus.h"
#include "common/io/file_util.h"
#include "common/model/device_processor.h"
#include "common/model/images/image_preparer.h"
#include "common/model/parallel_fit.h"
#include "common/status/status_macros.h"
#include "common/telemetry/log.h"

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

// A model that a rollout cannot compute on a GPU stays on the CPU if nobody asked for the GPU.
absl::StatusOr<host::DeviceChoice> ChooseRolloutDevice(const model::ModelSpec& spec,
                                                       const std::string& setting, int local_rank) {
  RETURN_IF_ERROR(model::CheckRolloutDevice(spec, setting));
  ASSIGN_OR_RETURN(
      host::DeviceChoice choice,
      host::ChooseDevice("rollout.device", setting, local_rank, model::GpuFactsOfProcess()));
  if (!choice.on_gpu()) return choice;
  const absl::Status fits = model::CheckRolloutDevice(spec, "cuda");
  if (!fits.ok()) return host::DeviceChoice{.description = absl::StrCat("cpu: ", fits.message())};
  return choice;
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
  if (rollout.enable_expert_parallel() && ranks > 1) {
    RETURN_IF_ERROR(model::CheckWholeExperts(spec, ranks));
  }
  ASSIGN_OR_RETURN(host::DeviceChoice device,
                   ChooseRolloutDevice(spec, rollout.device(), ranks > 1 ? local_rank : 0));
  EngineOptions options;
  options.model_name = folder.path;
  options.dtype =
      config.model().dtype() == config::v1::ELEMENT_TYPE_FLOAT32 ? at::kFloat : at::kBFloat16;
  if (device.on_gpu()) {
    options.device = at::Device(at::kCUDA, static_cast<at::DeviceIndex>(device.gpu));
  }
  options.device_description = std::move(device.description);
  options.forward.graphs = rollout.cuda_graphs();
  options.block_size = rollout.block_size();
  options.scheduler.max_num_seqs = rollout.max_num_seqs();
  options.scheduler.max_num_batched_tokens = rollout.max_num_batched_tokens();
  options.max_model_len = rollout.max_model_len();
  options.in_flight = FromProto(rollout.in_flight());
  if (spec.vision.has_value()) {
    options.image_preparer =
        model::ImagePreparer::Load(io::ParentFolder(folder.path), *spec.vision);
    if (!options.image_preparer.ok()) {
      telemetry::LogWarning("the rollout takes text alone",
                            {{"cause", options.image_preparer.status().message()}});
    }
  }
  for (const int64_t id : folder.eos_token_ids) {
    options.eos_token_ids.push_back(static_cast<int32_t>(id));
  }
  return options;
}

}  // namespace tandem::rollout
