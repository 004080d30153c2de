// The nearest semi-orthogonal matrix, approximately: the direction of a Muon step.
#ifndef TANDEM_SERVICES_TRAINER_OPTIM_NEWTON_SCHULZ_H_
#define TANDEM_SERVICES_TRAINER_OPTIM_NEWTON_SCHULZ_H_

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace tandem::trainer {

// Returns float32 [rows, columns]: `steps` of the quintic Newton-Schulz iteration
// x := a x + (b + c x x^T) x x^T x with (a, b, c) = (3.4445, -4.7750, 2.0315), from
// x = matrix / max(its Frobenius norm, 1e-7), on the wide side of the matrix. The coefficients
// (Muon, K. Jordan 2024) have the largest slope at 0: singular values end between 0.7 and 1.2.
// `matrix`: float32 [rows, columns], contiguous. On a CPU in float32, and the bits depend on the
// matrix alone; on a GPU the products are in bfloat16, which this iteration tolerates.
at::Tensor NewtonSchulz(const at::Tensor& matrix, int64_t steps);

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_OPTIM_NEWTON_SCHULZ_H_
