// DeviceAttention: PagedAttention of a GPU. One is made for an engine's life, for it owns what a
// step's launches read; steps tell it their sequences.
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

// bfloat16 with a head_dim of 64 or 128 goes through FlashInfer's kernel, everything else, and with
// exact numerics all, through a plain one (kernels/cuda/paged_attention.h), in which a row depends
// on the row and its keys alone. Everything is queued on the thread's current stream
// of the cache's device. What the device refuses is thrown, as ATen does. Not differentiable. One
// thread.
class DeviceAttention : public Attention {
 public:
  // The sequences of the calls of Forward() that follow, one after another in the batch. What was
  // queued for the sequences before must be done, for their arrays are overwritten. With
  // `padded_to`, no less than their number, each sequence has one new token, and the batch is
  // filled with tokens of the cache's padding block up to so many: Forward() then queues the same
  // launches with the same addresses for every plan of this size, so they may be captured in a CUDA
  // graph and repeated after another Plan(). Kept for as long as address_epoch() stays the same.
  virtual void Plan(absl::Span<const PagedSequence> sequences, int64_t padded_to = 0) = 0;

  // Counts the times that something which launches read has moved.
  virtual int64_t address_epoch() const = 0;
};

// `cache`, on a CUDA device, outlives the attention. `num_heads` of the queries, a multiple of the
// cache's KV heads. UNIMPLEMENTED in a build without TANDEM_CUDA, or for a head_dim that the
// kernels lack; UNAVAILABLE where there is no such device; RESOURCE_EXHAUSTED for its memory.
absl::StatusOr<std::unique_ptr<DeviceAttention>> CreateCudaAttention(const PagedKvCache& cache,
                                                                     int64_t num_heads);

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_DEVICE_ATTENTION_H_
