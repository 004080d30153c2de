// RecordedKernels: an operation whose result comes of kernels of our own and whose gradient is that
// of the same operation in ATen, for devices where there is no kernel for the gradient.
//
//   return RecordedKernels({gate_up}, [](const auto& in) { return variable_list{Kernel(in[0])}; },
//                          [](const auto& in) { return variable_list{eager::SwiGlu(in[0])}; })[0];
#ifndef TANDEM_COMMON_MODEL_KERNEL_FUNCTION_H_
#define TANDEM_COMMON_MODEL_KERNEL_FUNCTION_H_

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

namespace tandem::model {

// From inputs to results, all of them defined.
using TensorOperation = std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)>;

// What kernels(inputs) gives, none of it an input or a view of one. The backward pass computes
// reference(inputs), results of the same sizes and types in the same order, with a graph of its own
// and differentiates that: the inputs are kept, nothing of the reference is. Both are called
// without the graph that is being recorded.
std::vector<at::Tensor> RecordedKernels(const std::vector<at::Tensor>& inputs,
                                        const TensorOperation& kernels, TensorOperation reference);

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_KERNEL_FUNCTION_H_
