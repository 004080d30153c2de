// ExpertReplay: the experts that tokens of a forward pass are routed to, whatever the router would
// choose; their weights are the router's (2510.11370).
//
//   const ExpertReplay replay(layout, experts);
//   const RouterPass routers{.replay = &replay};
//   x = model.Block(params, layer, x, rotary, attention, nullptr, &routers);
#ifndef TANDEM_COMMON_MODEL_EXPERT_REPLAY_H_
#define TANDEM_COMMON_MODEL_EXPERT_REPLAY_H_

#include <ATen/core/Tensor.h>
#include <ATen/ops/where.h>

#include <cstdint>
#include <utility>

#include "common/model/routed_experts.h"

namespace tandem::model {

class ExpertReplay {
 public:
  // experts: int32 [num_tokens, layers with experts, top_k] on the device of the pass; negative where
  // the router chooses.
  ExpertReplay(RoutedLayout layout, at::Tensor experts)
      : layout_(std::move(layout)), experts_(std::move(experts)) {}

  // chosen: the router's choice, int64 [num_tokens, top_k].
  at::Tensor Replace(int64_t layer, const at::Tensor& chosen) const {
    const at::Tensor given = experts_.select(1, layout_.IndexOf(layer)).to(at::kLong);
    return at::where(given.ge(0), given, chosen);
  }

 private:
  const RoutedLayout layout_;
  const at::Tensor experts_;
};

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_EXPERT_REPLAY_H_
