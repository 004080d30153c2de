#include "common/model/layers/expert_spec.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace tandem::model {
namespace {

RouterParameters DeclareRouter(const ExpertSpec& spec, int64_t hidden_size,
                               const std::string& prefix, ParameterDeclarations& declarations) {
  const auto bias = [&](const char* name) {
    return Single(Whole(prefix + name, {spec.num_experts}), ParameterRole::kBias, kReplicate);
  };
  RouterParameters at;
  at.weight = declarations.Add(Single(Whole(prefix + "weight", {spec.num_experts, hidden_size}),
                                      ParameterRole::kMatrix, kReplicate));
  if (spec.routing.bias) at.bias = declarations.Add(bias("bias"));
  if (spec.routing.correction_bias) {
    Parameter correction = bias("e_score_correction_bias");
    correction.trainable = false;
    at.correction_bias = declarations.Add(std::move(correction));
  }
  return at;
}

}  // namespace

ExpertParameters DeclareExperts(const ExpertSpec& spec, int64_t hidden_size,
                                const std::string& prefix, TensorParallel parallel,
                                ParameterDeclarations& declarations) {
  const std::string block = prefix + "mlp.";
  const int64_t inner = spec.intermediate_size;
  const Range part = PartOf(inner, parallel);

  ExpertParameters at;
  at.router = DeclareRouter(spec, hidden_size, block + "gate.", declarations);
  for (int64_t e = 0; e < spec.num_experts; ++e) {
    const std::string expert = absl::StrCat(block, "experts.", e, ".");
    at.gate_up.weights.push_back(
        declarations.Add(Stack(expert + "gate_up_proj.weight",
                               {Rows(expert + "gate_proj.weight", {inner, hidden_size}, part),
                                Rows(expert + "up_proj.weight", {inner, hidden_size}, part)},
                               ParameterRole::kMatrix, kShardRows)));
    if (spec.bias) {
      at.gate_up.biases.push_back(
          declarations.Add(Stack(expert + "gate_up_proj.bias",
                                 {Rows(expert + "gate_proj.bias", {inner}, part),
                                  Rows(expert + "up_proj.bias", {inner}, part)},
                                 ParameterRole::kBias, kShardRows)));
    }
    at.down.weights.push_back(
        declarations.Add(Single(Part(expert + "down_proj.weight", {hidden_size, inner}, 1, part),
                                ParameterRole::kMatrix, kShardColumns)));
    if (spec.bias) {
      at.down.biases.push_back(declarations.Add(Single(
          Whole(expert + "down_proj.bias", {hidden_size}), ParameterRole::kBias, kReplicate)));
    }
  }
  if (spec.shared_intermediate_size > 0) {
    at.shared = DeclareFeedForward(spec.Shared(), hidden_size, block + "shared_expert.", parallel,
                                   declarations);
    if (spec.shared_gate) {
      at.shared_gate =
          declarations.Add(Single(Whole(block + "shared_expert_gate.weight", {1, hidden_size}),
                                  ParameterRole::kMatrix, kReplicate));
    }
  }
  return at;
}

}  // namespace tandem::model
