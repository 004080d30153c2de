// Rows times the sigmoid of a gate, element by element, forward and backward. Rows are contiguous. A
// row's result depends only on that row. Computes in float32 and rounds once.
#ifndef TANDEM_COMMON_MODEL_KERNELS_GATE_ROWS_H_
#define TANDEM_COMMON_MODEL_KERNELS_GATE_ROWS_H_

#include <cstdint>

#include "common/model/kernels/element.h"

namespace tandem::model::kernels {

struct GateForward {
  Element type = Element::kFloat32;
  int64_t size = 0;  // of a row
  const void* x = nullptr;
  const void* gate = nullptr;
  void* out = nullptr;  // x sigmoid(gate)
};
void GateRows(const GateForward& args, int64_t begin, int64_t end);

struct GateBackward {
  Element type = Element::kFloat32;
  int64_t size = 0;
  const void* x = nullptr;
  const void* gate = nullptr;
  const void* grad_out = nullptr;
  void* grad_x = nullptr;
  void* grad_gate = nullptr;
};
void GateBackwardRows(const GateBackward& args, int64_t begin, int64_t end);

}  // namespace tandem::model::kernels

#endif  // TANDEM_COMMON_MODEL_KERNELS_GATE_ROWS_H_
