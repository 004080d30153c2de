#include "common/model/layers/expert_spec.h"

#include "absl/strings/str_cat.h"

namespace tandem::model {

ExpertParameters DeclareExperts(const ExpertSpec& spec, int64_t hidden_size,
                                const std::string& prefix, TensorParallel parallel,
                                ParameterDeclarations& declarations) {
  const std::string block = prefix + spec.names.block;
  const int64_t inner = spec.intermediate_size;
  const Range part = PartOf(inner, parallel);

  ExpertParameters at;
  at.routing = spec.routing;
  at.router = declarations.Add(Single(Whole(block + "gate.weight", {spec.num_experts, hidden_size}),
                                      ParameterRole::kMatrix, kReplicate));
  for (int64_t e = 0; e < spec.num_experts; ++e) {
    const std::string expert = absl::StrCat(block, "experts.", e, ".");
    const auto name = [&](const std::string& matrix) { return expert + matrix + ".weight"; };
    at.gate_up.push_back(
        declarations.Add(Stack(expert + "gate_up_proj.weight",
                               {Rows(name(spec.names.gate), {inner, hidden_size}, part),
                                Rows(name(spec.names.up), {inner, hidden_size}, part)},
                               ParameterRole::kMatrix, kShardRows)));
    at.down.push_back(
        declarations.Add(Single(Part(name(spec.names.down), {hidden_size, inner}, 1, part),
                                ParameterRole::kMatrix, kShardColumns)));
  }
  if (spec.shared_intermediate_size > 0) {
    at.shared = DeclareFeedForward({.intermediate_size = spec.shared_intermediate_size},
                                   hidden_size, block + "shared_expert.", parallel, declarations);
    at.shared_gate =
        declarations.Add(Single(Whole(block + "shared_expert_gate.weight", {1, hidden_size}),
                                ParameterRole::kMatrix, kReplicate));
  }
  return at;
}

}  // namespace tandem::model
