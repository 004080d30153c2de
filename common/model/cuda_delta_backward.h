// The backward pass of linear attention over packed sequences on a CUDA device. Only for sources of a build
// with TANDEM_CUDA.
#ifndef TANDEM_COMMON_MODEL_CUDA_DELTA_BACKWARD_H_
#define TANDEM_COMMON_MODEL_CUDA_DELTA_BACKWARD_H_

#include <ATen/core/Tensor.h>

#include "common/model/delta_attention.h"
#include "common/model/device_delta_attention.h"

namespace tandem::model::device {

// Returns the gradients of the tensors, all contiguous, in their types. grad_out: contiguous, [num_rows,
// value_size]; at least one row. Queues on the thread's current stream of the tensors' device; throws
// device errors.
DeltaTensors DeltaBackwardOf(const DeltaSpec& spec, const DeltaTensors& tensors,
                             const DeltaPlaces& places, const at::Tensor& grad_out);

}  // namespace tandem::model::device

#endif  // TANDEM_COMMON_MODEL_CUDA_DELTA_BACKWARD_H_
