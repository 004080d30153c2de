// Rows of a matrix by their numbers.
#ifndef TANDEM_COMMON_MODEL_GATHER_ROWS_H_
#define TANDEM_COMMON_MODEL_GATHER_ROWS_H_

#include <ATen/core/Tensor.h>

namespace tandem::model {

// Row rows[i] of `matrix` [n, size] in row i. rows: int64 [m], where the matrix is. On the CPU both
// are contiguous, the result is a step's (step_memory.h) and is not differentiable. Throws
// c10::IndexError for a row that is not there.
at::Tensor GatherRows(const at::Tensor& matrix, const at::Tensor& rows);

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_GATHER_ROWS_H_
