// The forward pass of linear attention over rows on a CUDA device, as a plan lays them (CudaAttention) or
// as they are packed (device_delta_attention.h), and the working memory that the backward pass has too.
// Only for sources of a build with TANDEM_CUDA.
#ifndef TANDEM_COMMON_MODEL_CUDA_DELTA_FORWARD_H_
#define TANDEM_COMMON_MODEL_CUDA_DELTA_FORWARD_H_

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "common/model/delta_attention.h"
#include "common/model/device_delta_attention.h"
#include "common/model/kernels/cuda/delta_rule.h"

namespace tandem::model::device {

// The tensors must outlive the shape, and be contiguous.
cuda::DeltaShape CudaDeltaShapeOf(const DeltaSpec& spec, const DeltaTensors& tensors);

// The places must outlive the batch, which has no place_starts.
cuda::DeltaBatch CudaDeltaBatchOf(const DeltaPlaces& places);

// float32, beside `like`.
at::Tensor WorkingFloats(at::IntArrayRef sizes, const at::Tensor& like);
at::Tensor WorkingZeros(at::IntArrayRef sizes, const at::Tensor& like);

// What the recurrence reads (cuda::DeltaInputs), of so many places.
struct DeltaWorkingInputs {
  DeltaWorkingInputs(const cuda::DeltaShape& shape, int64_t places, const at::Tensor& like,
                     bool zero);
  cuda::DeltaInputs pointers() const;

  at::Tensor q, k, v, beta, decay;
};

// Returns [batch.num_rows, value_size]. Without place_starts. Queues on the thread's current stream of
// the tensors' device, and may be captured in a CUDA graph; throws device errors.
at::Tensor DeltaForwardOf(const DeltaSpec& spec, const DeltaTensors& tensors,
                          const cuda::DeltaBatch& batch);

}  // namespace tandem::model::device

#endif  // TANDEM_COMMON_MODEL_CUDA_DELTA_FORWARD_H_
