#include "services/rollout/service/cache_memory.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>

#include <memory>

#include "common/model/default_cache.h"
#include "common/model/device_processor.h"
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

absl::StatusOr<int64_t> CacheBytes(int64_t megabytes, const EngineOptions& options,
                                   const model::Transformer& model, comm::ProcessGroup* ranks) {
  if (megabytes > 0) return megabytes << 20;
  if (options.device.is_cpu()) return model::kDefaultCacheBytesOnCpu;
  ASSIGN_OR_RETURN(const int64_t free, model::FreeMemory(options.device));
  const int64_t weights =
      model.table().num_parameters() * static_cast<int64_t>(c10::elementSize(options.dtype));
  return LeastOfAll(model::DefaultCacheBytesOnGpu(free - weights), options.device, ranks);
}

}  // namespace tandem::rollout
