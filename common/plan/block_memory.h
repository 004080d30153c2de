// The tensors of one transformer block, forward and backward, as sizes: which op of
// common/model/transformer.cc allocates what, what its autograd function saves, and when each
// tensor is freed.
//
// Sizes are derived from the code, not fitted: norm.cc saves the sum and an inverse RMS; linear.cc
// its input; rotary.cc the projection if q and k are normed; packed_attention.cc q, k, v, its
// result and log-sum-exp; swiglu.cc its input. A GPU uses the plain ops of eager_ops.cc, which
// compute in float32 and save more.
#ifndef TANDEM_COMMON_PLAN_BLOCK_MEMORY_H_
#define TANDEM_COMMON_PLAN_BLOCK_MEMORY_H_

#include <cstdint>
#include <vector>

#include "common/comm/mesh_shape.h"
#include "common/model/model_spec.h"
#include "common/plan/memory_ledger.h"

namespace tandem::plan {

// The implementation of the ops.
enum class Kernels {
  kCpu,             // our fused kernels
  kCpuPlainScores,  // our kernels, but attention as matrix products and a softmax
  kPlain,           // eager_ops.cc, in float32: a GPU
};

// The parameters of a block that get gradients, and whether its input does.
struct BlockGradients {
  bool attention_norm = true, qkv = true, qkv_bias = true, q_norm = true, k_norm = true;
  bool output = true, output_bias = true;
  bool feed_forward_norm = true, gate_up = true, gate_up_bias = true;
  bool down = true, down_bias = true;
  bool input = true;
};

// The part of a block that one rank computes.
struct BlockShape {
  int64_t tokens = 0;            // of the residual stream
  int64_t attention_tokens = 0;  // tokens that attention sees: those of all ranks of a sequence
  int64_t sequences = 1;
  int64_t longest_sequence = 0;
  int64_t hidden = 0;
  int64_t heads = 0, kv_heads = 0, head_dim = 0;  // of the projections
  int64_t attention_heads = 0, attention_kv_heads = 0;
  int64_t intermediate = 0;
  bool qk_norm = false, qkv_bias = false, output_bias = false, mlp_bias = false;
  bool exchanges_sequences = false;  // Ulysses: attention's tensors are not the projections'
  bool sums_over_ranks = false;      // tensor parallelism
  BlockGradients gradients;
  int64_t element_bytes = 4;
  Kernels kernels = Kernels::kCpu;

  int64_t q() const { return heads * head_dim; }
  int64_t kv() const { return kv_heads * head_dim; }
};

// Returns the shape for a layer of the model. `tokens` and `sequences` are totals over the ranks
// that share the sequences.
BlockShape MakeBlockShape(const model::LayerSpec& layer, int64_t hidden_size,
                          const comm::MeshShape& mesh, int64_t element_bytes, Kernels kernels,
                          int64_t tokens, int64_t sequences, int64_t longest_sequence);

// The tensors that a forward pass saves for the backward pass besides the block's input and output.
class BlockGraph {
 public:
  enum class Mode {
    kNoGraph,    // nothing is saved
    kFull,       // everything that backward needs
    kSelective,  // saves results of matrix products and attention, recomputes the rest
  };

  // Runs the block forward. Returns the output.
  static Size Forward(MemoryLedger& ledger, const BlockShape& shape, Mode mode, BlockGraph& graph);

  // Runs the block backward and frees saved tensors on the way. Returns the gradients of trainable
  // parameters, and of the input last.
  std::vector<Size> Backward(MemoryLedger& ledger, const BlockShape& shape);

 private:
  struct Saved {
    Size normed, norm_scale, qkv, rotated, attended, returned, log_sum_exp, residual,
        residual_scale, mlp_in, gate_up, activated;
    Size norm_wide, rotate_wide, scores, residual_wide, swiglu_wide;  // of the plain ops
  };

  // Recomputes what a selective graph did not save.
  void Recompute(MemoryLedger& ledger, const BlockShape& shape);

  Saved saved_;
  bool selective_ = false;
};

}  // namespace tandem::plan

#endif  // TANDEM_COMMON_PLAN_BLOCK_MEMORY_H_
