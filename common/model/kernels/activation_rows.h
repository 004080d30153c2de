// Activations of a feed-forward layer over ranges of rows, gated or not, forward and backward. Rows
// are contiguous. A row's result depends only on that row. Computes in float32 and rounds once.
#ifndef TANDEM_COMMON_MODEL_KERNELS_ACTIVATION_ROWS_H_
#define TANDEM_COMMON_MODEL_KERNELS_ACTIVATION_ROWS_H_

#include <cstdint>

#include "common/model/kernels/element.h"
#include "common/model/layers/feed_forward_spec.h"

namespace tandem::model::kernels {

// xIELU's two slopes and its constants; unused by other activations:
//   x > 0:  positive x^2 + beta x
//   else:   negative (exp(min(x, eps)) - 1 - x) + beta x
struct XieluSlopes {
  float positive = 0;  // softplus(alpha_p)
  float negative = 0;  // beta + softplus(alpha_n)
};
inline constexpr float kXieluBeta = 0.5f;
inline constexpr float kXieluEps = -1e-6f;

// Constants of the clamped SwiGLU:
//   gate' sigmoid(slope gate') (up' + 1), gate' = min(gate, limit), up' = up in [-limit, limit]
inline constexpr float kSwigluLimit = 7.0f;
inline constexpr float kSwigluSlope = 1.702f;
inline constexpr float kQuickGeluSlope = 1.702f;

struct ActivationForward {
  Element type = Element::kFloat32;
  Activation activation = Activation::kSilu;
  bool gated = true;
  int64_t size = 0;          // of a row of `out`
  const void* in = nullptr;  // [rows, 2 size], gate first; [rows, size] without a gate
  void* out = nullptr;       // [rows, size]: activation(gate) * up, or activation(in)
  XieluSlopes xielu;
};
void ActivationRows(const ActivationForward& args, int64_t begin, int64_t end);

struct ActivationBackward {
  Element type = Element::kFloat32;
  Activation activation = Activation::kSilu;
  bool gated = true;
  int64_t size = 0;
  const void* in = nullptr;        // the forward's
  const void* grad_out = nullptr;  // [rows, size]
  void* grad_in = nullptr;         // like `in`
  XieluSlopes xielu;
};
// grad_slopes: float32 [2], to which the rows' gradients of XieluSlopes are added; or null. Not with a
// gate.
void ActivationBackwardRows(const ActivationBackward& args, int64_t begin, int64_t end,
                            float* grad_slopes);

}  // namespace tandem::model::kernels

#endif  // TANDEM_COMMON_MODEL_KERNELS_ACTIVATION_ROWS_H_
