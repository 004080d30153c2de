#include "common/model/layers/feed_forward_spec.h"

namespace tandem::model {

FeedForwardParameters DeclareFeedForward(const FeedForwardSpec& spec, int64_t hidden_size,
                                         const std::string& prefix, TensorParallel parallel,
                                         ParameterDeclarations& declarations) {
  const int64_t inner = spec.intermediate_size;
  const Range part = PartOf(inner, parallel);

  FeedForwardParameters at;
  at.gate_up_weight =
      declarations.Add(Stack(prefix + "gate_up_proj.weight",
                             {Rows(prefix + "gate_proj.weight", {inner, hidden_size}, part),
                              Rows(prefix + "up_proj.weight", {inner, hidden_size}, part)},
                             ParameterRole::kMatrix, kShardRows));
  if (spec.bias) {
    at.gate_up_bias = declarations.Add(Stack(prefix + "gate_up_proj.bias",
                                             {Rows(prefix + "gate_proj.bias", {inner}, part),
                                              Rows(prefix + "up_proj.bias", {inner}, part)},
                                             ParameterRole::kBias, kShardRows));
  }
  at.down_weight =
      declarations.Add(Single(Part(prefix + "down_proj.weight", {hidden_size, inner}, 1, part),
                              ParameterRole::kMatrix, kShardColumns));
  if (spec.bias) {
    at.down_bias = declarations.Add(
        Single(Whole(prefix + "down_proj.bias", {hidden_size}), ParameterRole::kBias, kReplicate));
  }
  return at;
}

}  // namespace tandem::model
