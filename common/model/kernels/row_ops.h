// Rotary embedding and column sums over ranges of rows, forward and backward. Rows are contiguous
// unless a stride is given; every tensor of a call has the element type `type`, or float32 where
// its argument is float. A row's result depends only on that row.
#ifndef TANDEM_COMMON_MODEL_KERNELS_ROW_OPS_H_
#define TANDEM_COMMON_MODEL_KERNELS_ROW_OPS_H_

#include <cstdint>

#include "common/model/kernels/element.h"

namespace tandem::model::kernels {

// Heads of q or k: normalised if there is a weight, then rotated.
struct RotateForward {
  Element type = Element::kFloat32;
  int64_t num_heads = 0;
  int64_t head_dim = 0;
  const void* in = nullptr;  // [rows, heads * head_dim]
  int64_t in_row_stride = 0;
  void* out = nullptr;  // like `in`
  int64_t out_row_stride = 0;
  const float* cos = nullptr;  // [rows, head_dim / 2]
  const float* sin = nullptr;
  const void* norm_weight = nullptr;  // [head_dim], or null
  float eps = 0;
  float* inverse_rms = nullptr;  // [rows, num_heads], or null
};
void RotateRows(const RotateForward& args, int64_t begin, int64_t end);

struct RotateBackward {
  Element type = Element::kFloat32;
  int64_t num_heads = 0;
  int64_t head_dim = 0;
  const void* grad_out = nullptr;
  int64_t grad_out_row_stride = 0;
  void* grad_in = nullptr;
  int64_t grad_in_row_stride = 0;
  const float* cos = nullptr;
  const float* sin = nullptr;
  const void* norm_weight = nullptr;  // or null; the following are then unused
  const void* in = nullptr;           // the forward's
  int64_t in_row_stride = 0;
  const float* inverse_rms = nullptr;
};
// grad_weight: float32 [head_dim], to which the rows' contribution is added; or null.
void RotateBackwardRows(const RotateBackward& args, int64_t begin, int64_t end, float* grad_weight);

// out[j] += rows [begin, end) of x[., j], x: [rows, size].
void AddRowsTo(Element type, int64_t size, const void* x, int64_t begin, int64_t end, float* out);

}  // namespace tandem::model::kernels

#endif  // TANDEM_COMMON_MODEL_KERNELS_ROW_OPS_H_
