#include "common/model/layers/feed_forward_layer.h"

#include <vector>

#include "common/model/layers/projection.h"
#include "common/model/swiglu.h"

namespace tandem::model {

at::Tensor FeedForwardLayer::Forward(const LayerContext& context, const at::Tensor& normed) const {
  const at::Tensor gate_up =  // [num_tokens, 2 intermediate]
      ColumnParallel(context, normed, at.gate_up_weight, at.gate_up_bias, "feed-forward, backward");
  const at::Tensor activated = SwiGlu(gate_up);
  if (context.recomputation != nullptr) {
    context.recomputation->Add({activated}, [gate_up = gate_up.detach()] {
      return std::vector<at::Tensor>{SwiGlu(gate_up)};
    });
  }
  return RowParallel(context, activated, at.down_weight, at.down_bias, "feed-forward");
}

}  // namespace tandem::model
