// DeltaSpec: linear attention by the gated delta rule (2412.06464) as numbers, without tensors. A
// value head has a matrix S in place of keys and values, which each token decays and corrects:
//
//   q, k, v = silu(convolution(q, k, v of this token and a few before it))
//   q, k    = q / |q| / key_dim^0.5, k / |k|           of each head
//   S       = a S,  a = exp(-exp(a_log) softplus(a + dt_bias))
//   S       = S + k (beta (v - S^T k))^T,  beta = sigmoid(b)
//   out     = norm(S^T q) silu(z)                      of each head
//
// A key head serves num_value_heads / num_key_heads consecutive value heads. layer_forward.h
// computes it; what it keeps of a sequence, S and the convolution's last inputs, has the same size
// for any number of tokens (recurrent_states.h).
#ifndef TANDEM_COMMON_MODEL_LAYERS_DELTA_SPEC_H_
#define TANDEM_COMMON_MODEL_LAYERS_DELTA_SPEC_H_

#include <cstdint>
#include <string>

#include "common/model/layers/norm_spec.h"
#include "common/model/parameter.h"
#include "common/model/tensor_parallel.h"

namespace tandem::model {

struct DeltaSpec {
  int64_t num_key_heads = 0;
  int64_t num_value_heads = 0;  // a multiple of num_key_heads
  int64_t key_dim = 0;          // of each head of q and k
  int64_t value_dim = 0;        // of each head of v and z
  int64_t kernel_size = 0;      // tokens that the convolution sees, this one included
  double norm_eps = 1e-6;

  int64_t group() const { return num_value_heads / num_key_heads; }
  int64_t key_size() const { return num_key_heads * key_dim; }
  int64_t value_size() const { return num_value_heads * value_dim; }
  // Channels of the convolution: q, k and v.
  int64_t convolved_size() const { return 2 * key_size() + value_size(); }
  // Columns of the projection: q, k, v, z, b, a.
  int64_t projected_size() const { return convolved_size() + value_size() + 2 * num_value_heads; }
  friend bool operator==(const DeltaSpec&, const DeltaSpec&) = default;
};

// The part of one of `parallel.size` ranks: some key heads, with their value heads.
DeltaSpec PartOf(const DeltaSpec& spec, TensorParallel parallel);

// Indices into the parameter table; sizes are those of the rank's part.
struct DeltaParameters {
  int in_weight = -1;           // [projected_size, hidden]
  int convolution_weight = -1;  // [convolved_size, 1, kernel_size]
  int a_log = -1;               // [num_value_heads]
  int dt_bias = -1;             // [num_value_heads]
  NormParameters norm;          // [value_dim], for all heads, whole on every rank
  int out_weight = -1;          // [hidden, value_size]
};

// `prefix` names the layer: "model.layers.0.".
DeltaParameters DeclareDelta(const DeltaSpec& spec, int64_t hidden_size, const std::string& prefix,
                             TensorParallel parallel, ParameterDeclarations& declarations);

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_LAYERS_DELTA_SPEC_H_
