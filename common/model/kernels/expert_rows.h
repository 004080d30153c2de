// Weighted sums of rows, forward and backward: how the results of a token's experts become one row.
// `rows`, `out` and gradients have the element type `type`; sums are in float32 and rounded once.
#ifndef TANDEM_COMMON_MODEL_KERNELS_EXPERT_ROWS_H_
#define TANDEM_COMMON_MODEL_KERNELS_EXPERT_ROWS_H_

#include <cstdint>

#include "common/model/kernels/element.h"

namespace tandem::model::kernels {

// out[i] = sum of weights[i, j] rows[places[i, j]], added in the order of j, so that a row's bits
// do not depend on the other rows.
struct WeightedSum {
  Element type = Element::kFloat32;
  int64_t size = 0;   // of a row
  int64_t terms = 0;  // of each sum
  const void* rows = nullptr;
  const int64_t* places = nullptr;  // [sums, terms], or null: row i is the only term of sum i
  const float* weights = nullptr;   // likewise; null: all 1
  void* out = nullptr;              // [sums, size]
};
void WeightedSumRows(const WeightedSum& args, int64_t begin, int64_t end);

// The gradients of rows and weights. Each row is a term of one sum.
struct WeightedSumBackward {
  Element type = Element::kFloat32;
  int64_t size = 0;
  int64_t terms = 0;
  const void* rows = nullptr;
  const int64_t* places = nullptr;
  const float* weights = nullptr;
  const void* grad_out = nullptr;
  void* grad_rows = nullptr;
  float* grad_weights = nullptr;  // [sums, terms]
};
void WeightedSumBackwardRows(const WeightedSumBackward& args, int64_t begin, int64_t end);

}  // namespace tandem::model::kernels

#endif  // TANDEM_COMMON_MODEL_KERNELS_EXPERT_ROWS_H_
