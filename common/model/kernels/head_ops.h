// Heads of q or k on the CPU, with every kind of norm and rotation, forward and backward, for ranges
// of rows: normed, rotated, normed, scaled. Arithmetic is float32 and each element is rounded once.
// A row's result depends only on that row. row_ops.h has the fused form of the usual case.
#ifndef TANDEM_COMMON_MODEL_KERNELS_HEAD_OPS_H_
#define TANDEM_COMMON_MODEL_KERNELS_HEAD_OPS_H_

#include <cstdint>

#include "common/model/kernels/element.h"

namespace tandem::model::kernels {

struct HeadNorm {
  enum class Kind { kNone, kRms, kLayer };
  Kind kind = Kind::kNone;
  bool after_rotation = false;
  bool all_heads = false;    // all heads of a row at once; otherwise each head
  bool own_weights = false;  // each head has weights of its own
  bool unit_offset = false;  // the scale is 1 + weight
  float eps = 0;
  const void* weight = nullptr;  // of the heads' type, [Width()], or null
  const void* bias = nullptr;    // likewise
};

struct HeadOps {
  Element type = Element::kFloat32;
  int64_t num_heads = 0;
  int64_t head_dim = 0;
  HeadNorm norm;
  const float* cos = nullptr;  // [rows, rotary_dim / 2]; null: no rotation
  const float* sin = nullptr;
  int64_t rotary_dim = 0;            // leading elements of a head that rotate
  bool interleaved = false;          // pairs (2i, 2i + 1) rotate, not (i, i + rotary_dim / 2)
  const float* row_scale = nullptr;  // [rows], or null

  // Elements of the norm's weight.
  int64_t Width() const {
    return norm.all_heads || norm.own_weights ? num_heads * head_dim : head_dim;
  }
};

// Rows of heads [rows, num_heads * head_dim]; the stride is in elements.
struct HeadRowsIn {
  const void* data = nullptr;
  int64_t row_stride = 0;
};
struct HeadRowsOut {
  void* data = nullptr;
  int64_t row_stride = 0;
};

void TransformHeads(const HeadOps& ops, const HeadRowsIn& in, const HeadRowsOut& out, int64_t begin,
                    int64_t end);

// `in`, the forward's, is read only if there is a norm. grad_norm: float32 [Width()] of the weight
// and, after it, [Width()] of the bias, to which the rows' contributions are added; null without a
// norm.
void TransformHeadsBackward(const HeadOps& ops, const HeadRowsIn& in, const HeadRowsIn& grad_out,
                            const HeadRowsOut& grad_in, int64_t begin, int64_t end,
                            float* grad_norm);

}  // namespace tandem::model::kernels

#endif  // TANDEM_COMMON_MODEL_KERNELS_HEAD_OPS_H_
