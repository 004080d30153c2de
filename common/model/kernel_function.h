// RecordedKernels: an operation computed by our own kernels and differentiated as the same
// operation in ATen, for devices without gradient kernels.
//
//   return RecordedKernels(
//       {x}, [=](const auto& in) { return variable_list{device::AddNorm(in[0], {}, norm).normed}; },
//       [=](const auto& in) { return variable_list{eager::Normalize(in[0], norm)}; })[0];
#ifndef TANDEM_COMMON_MODEL_KERNEL_FUNCTION_H_
#define TANDEM_COMMON_MODEL_KERNEL_FUNCTION_H_

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

namespace tandem::model {

// Maps inputs to results, all of them defined.
using TensorOperation = std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)>;

// Returns kernels(inputs), none of which may be an input or a view of one. The backward pass
// computes reference(inputs), which returns results of the same sizes and types in the same order,
// with a graph of its own and differentiates that. The inputs are kept, no intermediates. Both
// functions run with recording to the outer graph off.
std::vector<at::Tensor> RecordedKernels(const std::vector<at::Tensor>& inputs,
                                        const TensorOperation& kernels, TensorOperation reference);

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_KERNEL_FUNCTION_H_
