// Norms over ranges of rows, forward and backward. Rows are contiguous; every tensor of a call has
// the element type `type`, or float32 where its argument is float. A row's result depends only on
// that row. Computes in float32 and rounds once.
#ifndef TANDEM_COMMON_MODEL_KERNELS_NORM_ROWS_H_
#define TANDEM_COMMON_MODEL_KERNELS_NORM_ROWS_H_

#include <cstdint>

#include "common/model/kernels/element.h"
#include "common/model/layers/norm_spec.h"

namespace tandem::model::kernels {

struct NormForward {
  Element type = Element::kFloat32;
  int64_t size = 0;
  NormSpec spec;
  const void* x = nullptr;
  const void* delta = nullptr;   // added to x first, or null
  const void* weight = nullptr;  // [size]; null if the norm has none
  const void* bias = nullptr;    // likewise
  void* sum = nullptr;           // x + delta, if there is a delta
  void* out = nullptr;
  // For the backward pass, [rows] each, or null: 1 / sqrt(mean square or variance + eps), and the
  // mean of a LayerNorm.
  float* inverse = nullptr;
  float* mean = nullptr;
};
void NormRows(const NormForward& args, int64_t begin, int64_t end);

// out = a + b, rows of `size`; the same bits as the sum inside NormRows().
void AddRows(Element type, int64_t size, const void* a, const void* b, void* out, int64_t begin,
             int64_t end);

struct NormBackward {
  Element type = Element::kFloat32;
  int64_t size = 0;
  NormSpec spec;
  const void* x = nullptr;  // what was normalised
  const void* weight = nullptr;
  const float* inverse = nullptr;
  const float* mean = nullptr;  // of a LayerNorm
  const void* grad_out = nullptr;
  const void* grad_sum = nullptr;  // added to grad_x, or null
  void* grad_x = nullptr;
};
// grad_weight, grad_bias: float32 [size], to which the rows' contribution is added; or null.
void NormBackwardRows(const NormBackward& args, int64_t begin, int64_t end, float* grad_weight,
                      float* grad_bias);

}  // namespace tandem::model::kernels

#endif  // TANDEM_COMMON_MODEL_KERNELS_NORM_ROWS_H_
