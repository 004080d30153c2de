#include "common/plan/block_memory.h"

#include <algorithm>

#include "common/model/tensor_parallel.h"

namespace tandem::plan {
namespace {

constexpr int64_t kFloat = 4;  // bytes

// Sizes in bytes of the block's tensors.
struct Sizes {
  explicit Sizes(const BlockShape& s) {
    const int64_t row = s.tokens * s.element_bytes;
    hidden = row * s.hidden;
    q = row * s.q();
    kv = row * s.kv();
    qkv = q + 2 * kv;
    inner = row * s.intermediate;
    scale = s.tokens * kFloat;
    head_scales = s.qk_norm ? s.tokens * (s.heads + s.kv_heads) * kFloat : 0;
    log_sum_exp = s.attention_tokens * s.attention_heads * kFloat;
    // The same elements, sharded by heads instead of tokens; every rank holds a copy of few heads.
    const int64_t attention_row = s.attention_tokens * s.head_dim * s.element_bytes;
    attention_q = attention_row * s.attention_heads;
    attention_kv = attention_row * s.attention_kv_heads;
    // cpu_dispatch.cc, SumOverRows: float32 sums of up to 64 blocks of rows.
    const int64_t block = std::max<int64_t>(64, (s.tokens + 63) / 64);
    sum_blocks = std::max<int64_t>(1, (s.tokens + block - 1) / block);
  }

  int64_t hidden, q, kv, qkv, inner, scale, head_scales, log_sum_exp, attention_q, attention_kv,
      sum_blocks;
};

// Tensors of eager_ops.cc beyond those of the fused kernels: its float32 copies. An op in float32
// does not copy its input.
struct PlainExtras {
  explicit PlainExtras(const BlockShape& s) {
    const bool wide = s.element_bytes != kFloat;
    const bool plain = s.kernels == Kernels::kPlain;
    if (plain) {
      // x widened, and x / rms.
      norm = (wide ? 2 : 1) * s.tokens * s.hidden * kFloat;
      if (s.qk_norm) rotate = (wide ? 2 : 1) * s.tokens * (s.q() + s.kv()) * kFloat;
      // Halves of the rotation and their sum, during the op.
      rotate_temporary = 3 * s.tokens * s.q() * kFloat;
      // gate and up widened, the sigmoid, and gate x sigmoid.
      swiglu = (wide ? 4 : 2) * s.tokens * s.intermediate * kFloat;
    }
    if (plain || s.kernels == Kernels::kCpuPlainScores) {
      // For each sequence: softmax [heads, n, n] and the mask [n, n]; q, k and v widened, k and v
      // repeated for every head.
      const int64_t n = s.longest_sequence;
      const int64_t per_sequence = s.attention_heads * n * n * kFloat + n * n;
      scores = s.sequences * per_sequence +
               3 * s.attention_tokens * s.attention_heads * s.head_dim * kFloat;
      // Products before and after the mask, or their gradients.
      scores_temporary = 2 * s.attention_heads * n * n * kFloat;
    }
  }

  int64_t norm = 0, rotate = 0, rotate_temporary = 0, swiglu = 0, scores = 0, scores_temporary = 0;
};

}  // namespace

BlockShape MakeBlockShape(const model::LayerSpec& layer, int64_t hidden_size,
                          const comm::MeshShape& mesh, int64_t element_bytes, Kernels kernels,
                          int64_t tokens, int64_t sequences, int64_t longest_sequence) {
  BlockShape s;
  s.tokens = (tokens + mesh.sequence - 1) / mesh.sequence;
  s.attention_tokens = tokens;
  s.sequences = sequences;
  s.longest_sequence = longest_sequence;
  s.hidden = hidden_size;
  const model::TensorParallel last{mesh.tp - 1, mesh.tp};
  const model::AttentionPart part = model::PartOf(layer.attention, last);
  s.heads = part.heads.size();
  s.kv_heads = part.kv_heads.size();
  s.head_dim = layer.attention.head_dim;
  s.attention_heads = s.heads / mesh.sequence;
  s.attention_kv_heads = std::max<int64_t>(1, s.kv_heads / mesh.sequence);
  s.intermediate = model::PartOf(layer.feed_forward.intermediate_size, last).size();
  s.qk_norm = layer.attention.qk_norm;
  s.qkv_bias = layer.attention.qkv_bias;
  s.output_bias = layer.attention.output_bias;
  s.mlp_bias = layer.feed_forward.bias;
  s.exchanges_sequences = mesh.sequence > 1;
  s.sums_over_ranks = mesh.tp > 1;
  s.element_bytes = element_bytes;
  s.kernels = kernels;
  return s;
}

Size BlockGraph::Forward(MemoryLedger& ledger, const BlockShape& shape, Mode mode,
                         BlockGraph& graph) {
  const Sizes size(shape);
  const PlainExtras extra(shape);
  const auto take = [&ledger](int64_t bytes) {
    return ledger.Take(MemoryKind::kActivations, bytes);
  };
  // The results of Transformer::Block's ops are local variables, so all of them live until its end.
  Saved s;
  s.norm_wide = take(extra.norm);
  s.normed = take(size.hidden);
  s.norm_scale = take(size.scale);
  s.qkv = take(size.qkv);
  s.rotate_wide = take(extra.rotate);
  {
    const Size temporary = take(extra.rotate_temporary);
    s.rotated = take(size.q + size.kv + size.head_scales);
  }
  const Size q_and_k = s.rotated;
  if (shape.exchanges_sequences) {
    // Heads are concatenated to be sent, and arrive in a separate tensor.
    const Size sent = take(size.attention_q + 2 * size.attention_kv);
    s.rotated = take(size.attention_q + 2 * size.attention_kv);
  }
  {
    const Size temporary = take(extra.scores_temporary);
    s.scores = take(extra.scores);
    s.attended = take(size.attention_q);
    s.log_sum_exp = take(size.log_sum_exp);
  }
  Size returned;
  if (shape.exchanges_sequences) {
    const Size received = take(size.attention_q);
    returned = take(size.q);
  }
  const auto summed = [&] {
    // A product that is summed over ranks is copied first (tensor_collectives.cc).
    const Size own = take(shape.sums_over_ranks ? size.hidden : 0);
    return take(size.hidden);
  };
  const Size delta = summed();
  s.residual_wide = take(extra.norm);
  s.residual = take(size.hidden);
  s.mlp_in = take(size.hidden);
  s.residual_scale = take(size.scale);
  s.gate_up = take(2 * size.inner);
  s.swiglu_wide = take(extra.swiglu);
  s.activated = take(size.inner);
  Size down = summed();
  if (mode == Mode::kNoGraph) s.activated.reset();  // a temporary of the down projection
  Size out = take(size.hidden);
  down.reset();
  if (mode == Mode::kNoGraph) return out;
  if (shape.exchanges_sequences) {
    s.returned = std::move(returned);
    if (!shape.qk_norm) s.qkv.reset();  // v was copied
  }
  if (mode == Mode::kSelective) {
    s.normed.reset();
    s.rotated.reset();
    s.mlp_in.reset();
    s.activated.reset();
    s.norm_wide.reset();
    s.residual_wide.reset();
    s.rotate_wide.reset();
    s.swiglu_wide.reset();
  }
  graph.saved_ = std::move(s);
  graph.selective_ = mode == Mode::kSelective;
  return out;
}

void BlockGraph::Recompute(MemoryLedger& ledger, const BlockShape& shape) {
  const Sizes size(shape);
  const PlainExtras extra(shape);
  const auto take = [&ledger](int64_t bytes) {
    return ledger.Take(MemoryKind::kActivations, bytes);
  };
  saved_.norm_wide = take(extra.norm);
  saved_.normed = take(size.hidden);
  saved_.rotate_wide = take(extra.rotate);
  saved_.rotated = take(size.q + size.kv + size.head_scales);
  saved_.residual_wide = take(extra.norm);
  saved_.mlp_in = take(size.hidden);
  saved_.swiglu_wide = take(extra.swiglu);
  saved_.activated = take(size.inner);
  selective_ = false;
}

std::vector<Size> BlockGraph::Backward(MemoryLedger& ledger, const BlockShape& shape) {
  if (selective_) Recompute(ledger, shape);
  const Sizes size(shape);
  const PlainExtras extra(shape);
  const auto take = [&ledger](int64_t bytes) {
    return ledger.Take(MemoryKind::kActivations, bytes);
  };
  const BlockGradients& wanted = shape.gradients;
  std::vector<Size> gradients;
  const auto weight = [&](bool is_wanted, int64_t rows, int64_t columns) {
    if (!is_wanted) return;
    gradients.push_back(
        ledger.Take(MemoryKind::kGradientBuffers, rows * columns * shape.element_bytes));
  };
  // A column sum keeps its blocks if it need not be rounded; rounding makes a copy.
  const auto sum_over_rows = [&](bool is_wanted, int64_t columns) {
    if (!is_wanted) return;
    const Size blocks =
        ledger.Take(MemoryKind::kGradientBuffers, size.sum_blocks * columns * kFloat);
    if (shape.element_bytes == kFloat) {
      gradients.push_back(blocks);
    } else {
      weight(true, 1, columns);
    }
  };
  Saved s = std::move(saved_);
  saved_ = Saved();

  // Each op allocates the gradients of its inputs; then autograd frees what the op saved and its
  // output gradients.
  Size grad_activated = take(size.inner);
  weight(wanted.down, shape.hidden, shape.intermediate);
  sum_over_rows(shape.mlp_bias && wanted.down_bias, shape.hidden);
  s.activated.reset();

  Size grad_gate_up;
  {
    const Size temporary = take(extra.swiglu / 2);
    grad_gate_up = take(2 * size.inner);
  }
  s.gate_up.reset();
  s.swiglu_wide.reset();
  grad_activated.reset();

  Size grad_mlp_in = take(size.hidden);
  weight(wanted.gate_up, 2 * shape.intermediate, shape.hidden);
  sum_over_rows(shape.mlp_bias && wanted.gate_up_bias, 2 * shape.intermediate);
  s.mlp_in.reset();
  grad_gate_up.reset();
  if (shape.sums_over_ranks) grad_mlp_in = take(size.hidden);

  // Gradient of the residual stream: held until the input's other gradient is added to it.
  Size grad_residual;
  {
    const Size temporary = take(extra.norm);
    grad_residual = take(size.hidden);
    sum_over_rows(wanted.feed_forward_norm, shape.hidden);
  }
  s.residual.reset();
  s.residual_scale.reset();
  s.residual_wide.reset();
  grad_mlp_in.reset();

  Size grad_attended = take(size.q);
  weight(wanted.output, shape.hidden, shape.q());
  sum_over_rows(shape.output_bias && wanted.output_bias, shape.hidden);
  s.returned.reset();
  if (shape.exchanges_sequences) {
    const Size sent = std::move(grad_attended);
    grad_attended = take(size.attention_q);
  }

  Size grad_heads;
  {
    const Size temporary = take(extra.scores_temporary);
    grad_heads = take(size.attention_q + 2 * size.attention_kv);
  }
  s.scores.reset();
  s.rotated.reset();
  s.attended.reset();
  s.log_sum_exp.reset();
  if (!shape.qk_norm) s.qkv.reset();  // v was a view of it
  grad_attended.reset();
  if (shape.exchanges_sequences) {
    const Size sent = std::move(grad_heads);
    grad_heads = take(size.qkv);
  }

  Size grad_qkv;
  {
    const Size temporary = take(extra.rotate_temporary);
    grad_qkv = take(size.qkv);
  }
  sum_over_rows(shape.qk_norm && wanted.q_norm, shape.head_dim);
  sum_over_rows(shape.qk_norm && wanted.k_norm, shape.head_dim);
  s.qkv.reset();
  s.rotate_wide.reset();
  grad_heads.reset();

  const bool norm_has_backward = wanted.input || wanted.attention_norm;
  Size grad_normed = take(norm_has_backward ? size.hidden : 0);
  weight(wanted.qkv, shape.q() + 2 * shape.kv(), shape.hidden);
  sum_over_rows(shape.qkv_bias && wanted.qkv_bias, shape.q() + 2 * shape.kv());
  s.normed.reset();
  grad_qkv.reset();
  if (norm_has_backward) {
    if (shape.sums_over_ranks) grad_normed = take(size.hidden);
    const Size temporary = take(extra.norm);
    const Size grad_input = take(size.hidden);  // added to the residual's in place
    sum_over_rows(wanted.attention_norm, shape.hidden);
  }
  gradients.push_back(std::move(grad_residual));
  return gradients;
}

}  // namespace tandem::plan
