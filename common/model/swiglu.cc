#include "common/model/swiglu.h"

#include "common/model/eager_ops.h"

namespace tandem::model {

at::Tensor SwiGlu(const at::Tensor& gate_up) { return eager::SwiGlu(gate_up); }

}  // namespace tandem::model
