// DeviceAttention: PagedAttention on a GPU. An engine creates one and keeps it for life, because it
// owns the buffers that launches read; Plan() gives it the sequences of each step.
//
//   ASSIGN_OR_RETURN(auto attention, CreateCudaAttention(cache, num_heads));
//   attention->Plan(sequences);
//   x = model.Block(params, layer, x, rotary, *attention);
#ifndef TANDEM_COMMON_MODEL_DEVICE_ATTENTION_H_
#define TANDEM_COMMON_MODEL_DEVICE_ATTENTION_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/model/attention.h"
#include "common/model/paged_attention.h"
#include "common/model/paged_kv_cache.h"

namespace tandem::model {

// bfloat16 with a head_dim of 64 or 128, of keys and values, uses FlashInfer's kernel; bfloat16 over a
// cache of latents one of our own. Everything else, and everything with exact numerics, uses a plain
// kernel (kernels/cuda/paged_attention.h) in which a row depends only on that row and its keys. All
// work is queued on the thread's current stream of the cache's device. Device errors are thrown, as in
// ATen. Not differentiable. Single-threaded.
class DeviceAttention : public Attention {
 public:
  // Sets the sequences for the following calls of Forward(), one after another in the batch. Work
  // queued for the previous plan must have finished, because Plan() overwrites its arrays. With
  // `padded_to`, at least the number of sequences, each sequence has one new token, and tokens of
  // the cache's padding block fill the batch up to that size: Forward() then queues the same
  // launches with the same addresses for every plan of this size, so they may be captured in a CUDA
  // graph and replayed after another Plan(). A captured graph is valid while address_epoch() stays
  // the same.
  virtual void Plan(absl::Span<const PagedSequence> sequences, int64_t padded_to = 0) = 0;

  // Incremented whenever a buffer that launches read has moved.
  virtual int64_t address_epoch() const = 0;
};

// `cache` is on a CUDA device and outlives the attention. `num_heads` counts query heads, a
// multiple of the cache's KV heads. UNIMPLEMENTED in a build without TANDEM_CUDA, for sizes
// that the kernels do not support, or for layers with a sliding window, whose block tables the plan
// does not follow; UNAVAILABLE if there is no such device; RESOURCE_EXHAUSTED if
// its memory does not suffice.
absl::StatusOr<std::unique_ptr<DeviceAttention>> CreateCudaAttention(const PagedKvCache& cache,
                                                                     int64_t num_heads);

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_DEVICE_ATTENTION_H_
