// The products of experts: consecutive rows of a batch, each expert's times its own weight.
#ifndef TANDEM_COMMON_MODEL_GROUPED_LINEAR_H_
#define TANDEM_COMMON_MODEL_GROUPED_LINEAR_H_

#include <ATen/core/Tensor.h>

#include <vector>

#include "common/model/expert_rows.h"
#include "common/model/kernels/packed_matrix.h"

namespace tandem::model {

// Returns, for the rows of expert e, x weights[e]^T + biases[e]: [num_rows, out]. x: [num_rows, in]
// by expert; weights: of each expert, [out, in]; biases: of each, [out], or none at all. packed: the
// weights' packed forms or nulls, used as in Linear(), whose bits a row has. Differentiable; the
// weight and bias of an expert without rows have no gradient, which counts as zero.
at::Tensor GroupedLinear(const at::Tensor& x, const ExpertRows& rows,
                         const std::vector<at::Tensor>& weights,
                         const std::vector<at::Tensor>& biases,
                         const std::vector<const kernels::PackedMatrix*>& packed);

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_GROUPED_LINEAR_H_
