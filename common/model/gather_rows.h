// Gathers rows of a matrix by index.
#ifndef TANDEM_COMMON_MODEL_GATHER_ROWS_H_
#define TANDEM_COMMON_MODEL_GATHER_ROWS_H_

#include <ATen/core/Tensor.h>

namespace tandem::model {

// Returns row rows[i] of `matrix` [n, size] as row i. rows: int64 [m], on the matrix's device. On
// the CPU both are contiguous, and the result is allocated from the step's memory (step_memory.h)
// and is not differentiable. Throws c10::IndexError for an index out of range.
at::Tensor GatherRows(const at::Tensor& matrix, const at::Tensor& rows);

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_GATHER_ROWS_H_
