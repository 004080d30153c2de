// Between tensors and the CPU kernels: which tensors the kernels take, and loops over rows.
#ifndef TANDEM_COMMON_MODEL_CPU_DISPATCH_H_
#define TANDEM_COMMON_MODEL_CPU_DISPATCH_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <initializer_list>

#include "common/model/kernels/element.h"
#include "common/model/kernels/gemm.h"

namespace tandem::model {

// True where all tensors are on the CPU and share an element type that the kernels have. Undefined
// tensors are passed over. Other tensors take the ATen way of eager_ops.h.
bool KernelsTake(std::initializer_list<at::Tensor> tensors);

// Whether autograd would record an operation on these.
bool NeedsGraph(std::initializer_list<at::Tensor> tensors);

// float32 or bfloat16 only.
kernels::Element ElementOf(const at::Tensor& tensor);

// body(begin, end) over [0, rows), in as many threads as rows of `size` elements are worth.
void ForRows(int64_t rows, int64_t size, const kernels::RangeBody& body);

// One task at a time to each free thread.
void ForTasks(int64_t tasks, const kernels::RangeBody& body);

// The sum over rows of what add(begin, end, out) adds to out, float32 [size]. The rows are cut at
// the same places whatever the number of threads, so the sum's bits do not depend on it.
at::Tensor SumOverRows(int64_t rows, int64_t size,
                       const std::function<void(int64_t, int64_t, float*)>& add);

// kernels::Multiply in ATen's threads.
void Multiply(const kernels::Product& product);

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_CPU_DISPATCH_H_
