#include "common/model/layers/delta_spec.h"

#include <utility>
#include <vector>

namespace tandem::model {

DeltaSpec PartOf(const DeltaSpec& spec, TensorParallel parallel) {
  DeltaSpec part = spec;
  part.num_key_heads = PartOf(spec.num_key_heads, parallel).size();
  part.num_value_heads = part.num_key_heads * spec.group();
  return part;
}

DeltaParameters DeclareDelta(const DeltaSpec& spec, int64_t hidden_size, const std::string& prefix,
                             TensorParallel parallel, ParameterDeclarations& declarations) {
  const std::string name = prefix + "linear_attn.";
  const Range key_heads = PartOf(spec.num_key_heads, parallel);
  const auto scaled = [&](int64_t factor) {
    return Range{key_heads.begin * factor, key_heads.end * factor};
  };
  const Range keys = scaled(spec.key_dim);
  const Range values = scaled(spec.group() * spec.value_dim);
  const Range value_heads = scaled(spec.group());
  const auto projection = [&](const char* which, int64_t size, Range rows) {
    return Rows(name + which + ".weight", {size, hidden_size}, rows);
  };
  const auto channels = [&](const char* which, int64_t size, Range rows) {
    return Rows(name + which + ".weight", {size, 1, spec.kernel_size}, rows);
  };
  DeltaParameters at;
  at.in_weight = declarations.Add(Stack(
      name + "in_proj.weight",
      {projection("q_proj", spec.key_size(), keys), projection("k_proj", spec.key_size(), keys),
       projection("v_proj", spec.value_size(), values),
       projection("z_proj", spec.value_size(), values),
       projection("b_proj", spec.num_value_heads, value_heads),
       projection("a_proj", spec.num_value_heads, value_heads)},
      ParameterRole::kMatrix, kShardRows));
  at.convolution_weight = declarations.Add(Stack(
      name + "conv1d.weight",
      {channels("q_conv1d", spec.key_size(), keys), channels("k_conv1d", spec.key_size(), keys),
       channels("v_conv1d", spec.value_size(), values)},
      ParameterRole::kConvolution, kShardRows));
  at.a_log = declarations.Add(Single(Rows(name + "A_log", {spec.num_value_heads}, value_heads),
                                     ParameterRole::kDecay, kShardRows));
  Segment dt_bias = Rows(name + "dt_bias", {spec.num_value_heads}, value_heads);
  dt_bias.initial_value = 1.0f;
  at.dt_bias = declarations.Add(Single(std::move(dt_bias), ParameterRole::kBias, kShardRows));
  at.norm = DeclareNorm({.eps = spec.norm_eps}, spec.value_dim, name + "norm.", declarations);
  at.out_weight = declarations.Add(
      Single(Part(name + "out_proj.weight", {hidden_size, spec.value_size()}, 1, values),
             ParameterRole::kMatrix, kShardColumns));
  return at;
}

}  // namespace tandem::model
