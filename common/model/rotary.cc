#include "common/model/rotary.h"

#include "common/model/eager_ops.h"

namespace tandem::model {

Qkv RotateQkv(const at::Tensor& qkv, const Rotary& rotary, const QkvShape& shape,
              const std::optional<at::Tensor>& q_norm, const std::optional<at::Tensor>& k_norm,
              double eps) {
  return eager::RotateQkv(qkv, rotary, shape, q_norm, k_norm, eps);
}

}  // namespace tandem::model
