#include "common/model/layers/feed_forward_spec.h"

#include <cmath>
#include <utility>
#include <vector>

namespace tandem::model {
namespace {

// A scalar whose softplus is `slope`.
Segment Alpha(std::string name, double slope) {
  Segment segment = Whole(std::move(name), {1});
  segment.initial_value = static_cast<float>(std::log(std::expm1(slope)));
  return segment;
}

}  // namespace

FeedForwardParameters DeclareFeedForward(const FeedForwardSpec& spec, int64_t hidden_size,
                                         const std::string& prefix, TensorParallel parallel,
                                         ParameterDeclarations& declarations) {
  const int64_t inner = spec.intermediate_size;
  const Range part = PartOf(inner, parallel);
  // Gate and up are one parameter; without a gate there is only up.
  const auto declare_gate_up = [&](const char* suffix, const std::vector<int64_t>& shape,
                                   ParameterRole role) {
    Segment up = Rows(prefix + "up_proj" + suffix, shape, part);
    if (!spec.gated) return declarations.Add(Single(std::move(up), role, kShardRows));
    return declarations.Add(Stack(prefix + "gate_up_proj" + suffix,
                                  {Rows(prefix + "gate_proj" + suffix, shape, part), std::move(up)},
                                  role, kShardRows));
  };

  FeedForwardParameters at;
  at.gate_up_weight = declare_gate_up(".weight", {inner, hidden_size}, ParameterRole::kMatrix);
  if (spec.bias) at.gate_up_bias = declare_gate_up(".bias", {inner}, ParameterRole::kBias);
  at.down_weight =
      declarations.Add(Single(Part(prefix + "down_proj.weight", {hidden_size, inner}, 1, part),
                              ParameterRole::kMatrix, kShardColumns));
  if (spec.bias) {
    at.down_bias = declarations.Add(
        Single(Whole(prefix + "down_proj.bias", {hidden_size}), ParameterRole::kBias, kReplicate));
  }
  if (spec.activation == Activation::kXielu) {
    // Slopes of 0.8 on both sides; the constant beta is half of 1 and part of the negative one.
    at.alphas = declarations.Add(
        Stack(prefix + "act_fn.alphas",
              {Alpha(prefix + "act_fn.alpha_p", 0.8), Alpha(prefix + "act_fn.alpha_n", 0.8 - 0.5)},
              ParameterRole::kScalar, kReplicate));
  }
  return at;
}

}  // namespace tandem::model
