#include "common/model/layers/delta_spec.h"

namespace tandem::model {

DeltaParameters DeclareDelta(const DeltaSpec& spec, int64_t hidden_size, const std::string& prefix,
                             ParameterDeclarations& declarations) {
  const std::string name = prefix + "linear_attn.";
  const auto rows = [&](const char* which, int64_t count) {
    return Whole(name + which + ".weight", {count, hidden_size});
  };
  DeltaParameters at;
  at.in_weight = declarations.Add(Stack(
      name + "in_proj.weight",
      {rows("q_proj", spec.key_size()), rows("k_proj", spec.key_size()),
       rows("v_proj", spec.value_size()), rows("z_proj", spec.value_size()),
       rows("b_proj", spec.num_value_heads), rows("a_proj", spec.num_value_heads)},
      ParameterRole::kMatrix, kReplicate));
  at.convolution_weight = declarations.Add(
      Single(Whole(name + "conv1d.weight", {spec.convolved_size(), 1, spec.kernel_size}),
             ParameterRole::kConvolution, kReplicate));
  at.a_log = declarations.Add(
      Single(Whole(name + "A_log", {spec.num_value_heads}), ParameterRole::kDecay, kReplicate));
  Segment dt_bias = Whole(name + "dt_bias", {spec.num_value_heads});
  dt_bias.initial_value = 1.0f;
  at.dt_bias =
      declarations.Add(Single(std::move(dt_bias), ParameterRole::kBias, kReplicate));
  at.norm = DeclareNorm({.eps = spec.norm_eps}, spec.value_dim, name + "norm.", declarations);
  at.out_weight =
      declarations.Add(Single(Whole(name + "out_proj.weight", {hidden_size, spec.value_size()}),
                              ParameterRole::kMatrix, kReplicate));
  return at;
}

}  // namespace tandem::model
