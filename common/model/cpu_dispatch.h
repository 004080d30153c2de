// Connects tensors to the CPU kernels: which tensors the kernels support, and loops over rows.
#ifndef TANDEM_COMMON_MODEL_CPU_DISPATCH_H_
#define TANDEM_COMMON_MODEL_CPU_DISPATCH_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <initializer_list>

#include "common/model/kernels/element.h"
#include "common/model/kernels/gemm.h"

namespace tandem::model {

// Returns true if all tensors are on the CPU and share an element type that the kernels support.
// Ignores undefined tensors. Other tensors use the ATen implementation in eager_ops.h.
bool KernelsTake(std::initializer_list<at::Tensor> tensors);

// Returns whether autograd would record an operation on these.
bool NeedsGraph(std::initializer_list<at::Tensor> tensors);

// float32 or bfloat16 only.
kernels::Element ElementOf(const at::Tensor& tensor);

// Calls body(begin, end) for ranges that cover [0, rows), with as many threads as the work, rows of
// `size` elements, justifies.
void ForRows(int64_t rows, int64_t size, const kernels::RangeBody& body);

// Calls body for one task at a time on each free thread.
void ForTasks(int64_t tasks, const kernels::RangeBody& body);
// The same, for kernels that are given it.
const kernels::ParallelFor& AsParallelFor();

// Returns the sum of what add(begin, end, out) adds to out, float32 [size], over all rows. Rows are
// split at the same places for any number of threads, so the sum's bits do not depend on it. `work`:
// the elements that a row's terms are computed from, if not `size`.
at::Tensor SumOverRows(int64_t rows, int64_t size,
                       const std::function<void(int64_t, int64_t, float*)>& add, int64_t work = 0);

// Runs kernels::Multiply on ATen's threads.
void Multiply(const kernels::Product& product);

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_CPU_DISPATCH_H_
