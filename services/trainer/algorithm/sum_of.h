// SumOf(tensor): the sum of all its elements, as a number for a metric.
#ifndef TANDEM_SERVICES_TRAINER_ALGORITHM_SUM_OF_H_
#define TANDEM_SERVICES_TRAINER_ALGORITHM_SUM_OF_H_

#include <ATen/core/Tensor.h>

namespace tandem::trainer {

// Takes any shape and type, adds in double; no gradient flows through it.
inline double SumOf(const at::Tensor& values) {
  return values.detach().sum(at::kDouble).item<double>();
}

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_ALGORITHM_SUM_OF_H_
