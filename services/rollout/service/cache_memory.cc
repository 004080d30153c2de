#include "services/rollout/service/cache_memory.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>

#include <memory>

#include "common/model/device_processor.h"
#include "common/model/gpu_memory.h"
#include "common/model/model_cache.h"
#include "common/status/status_macros.h"

namespace tandem::rollout {
namespace {

// Ranks must have as many blocks each.
absl::StatusOr<int64_t> LeastOfAll(int64_t bytes, at::Device device, comm::ProcessGroup* ranks) {
  if (ranks == nullptr || ranks->size() == 1) return bytes;
  const at::Tensor least = at::full({1}, bytes, at::TensorOptions(at::kLong).device(device));
  ASSIGN_OR_RETURN(std::unique_ptr<comm::Work> work,
                   ranks->AllReduce(least, comm::ReduceOp::kMin, "free memory"));
  RETURN_IF_ERROR(work->Wait());
  return least.item<int64_t>();
}

}  // namespace

absl::Status DivideMemory(int64_t megabytes, const model::Transformer& model,
                          comm::ProcessGroup* ranks, EngineOptions& options) {
  const int64_t stated = megabytes << 20;
  if (options.device.is_cpu()) {
    options.kv_cache_bytes = stated > 0 ? stated : model::kDefaultCacheBytesOnCpu;
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const int64_t free, model::FreeMemory(options.device));
  const int64_t weights =
      model.table().num_parameters() * static_cast<int64_t>(c10::elementSize(options.dtype));
  const model::RecurrentStateOptions of_states = model::StatesOfModel(
      model.spec(), model.table().tensor_parallel(), options.scheduler.max_num_seqs, options.dtype);
  const int64_t states = of_states.count * model::RecurrentStates::BytesPerSequence(of_states);
  const bool stages = model::StagesWeightsOnGpu(free, weights, stated + states);
  if (stages) options.staged_on = options.device;
  options.kv_cache_bytes = stated;
  if (stated > 0) return absl::OkStatus();
  const int64_t share = model::DefaultCacheBytesOnGpu(free - (stages ? 2 : 1) * weights - states);
  ASSIGN_OR_RETURN(options.kv_cache_bytes, LeastOfAll(share, options.device, ranks));
  return absl::OkStatus();
}

}  // namespace tandem::rollout
