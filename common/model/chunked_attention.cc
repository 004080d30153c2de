#include "common/model/chunked_attention.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "common/model/cpu_dispatch.h"
#include "common/model/eager_ops.h"

namespace tandem::model {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Queries of one sequence and the keys that they see: rows of the packed batch.
struct Chunk {
  int64_t first_query;
  int64_t num_queries;
  int64_t first_key;
  int64_t num_keys;
  int64_t key_position;  // of the first key, in its sequence
  std::optional<eager::SeenAhead> ahead;

  at::Tensor Queries(const at::Tensor& q) const { return q.narrow(0, first_query, num_queries); }
  at::Tensor Keys(const at::Tensor& k) const { return k.narrow(0, first_key, num_keys); }
};

std::vector<Chunk> ChunksOf(const at::Tensor& cu_seqlens, int64_t num_heads, const Window& window,
                            const at::Tensor& seen_ends, int64_t scores_at_once) {
  const int64_t* const starts = cu_seqlens.const_data_ptr<int64_t>();
  std::vector<Chunk> chunks;
  for (int64_t i = 0; i + 1 < cu_seqlens.numel(); ++i) {
    const int64_t start = starts[i];
    const int64_t length = starts[i + 1] - start;
    const int64_t most = std::clamp<int64_t>(
        scores_at_once / std::max<int64_t>(1, num_heads * length), 1, std::max<int64_t>(1, length));
    for (int64_t begin = 0; begin < length; begin += most) {
      const int64_t end = std::min(length, begin + most);
      const int64_t first_key = window.OldestSeen(begin);
      Chunk& chunk = chunks.emplace_back(Chunk{start + begin, end - begin, start + first_key,
                                               end - first_key, first_key, std::nullopt});
      if (!seen_ends.defined()) continue;
      chunk.ahead = {begin, seen_ends.narrow(0, start + begin, end - begin)};
      // They never fall.
      chunk.num_keys = seen_ends.const_data_ptr<int64_t>()[start + end - 1] - first_key;
    }
  }
  return chunks;
}

// What the backward pass needs besides tensors.
struct KeptAttention : torch::CustomClassHolder {
  KeptAttention(std::vector<Chunk> all, AttentionParams given)
      : chunks(std::move(all)), params(std::move(given)) {}
  std::vector<Chunk> chunks;
  AttentionParams params;  // without sinks
};

at::Tensor Forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                   const std::vector<Chunk>& chunks, const AttentionParams& params) {
  at::Tensor out = at::empty({q.size(0), q.size(1) * v.size(2)}, q.options().requires_grad(false));
  for (const Chunk& chunk : chunks) {
    chunk.Queries(out).copy_(eager::Attention(chunk.Queries(q), chunk.Keys(k), chunk.Keys(v),
                                              params, chunk.key_position, chunk.ahead));
  }
  return out;
}

struct ChunkedFunction : torch::autograd::Function<ChunkedFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& q, const at::Tensor& k,
                            const at::Tensor& v, const std::optional<at::Tensor>& sinks,
                            const c10::intrusive_ptr<KeptAttention>& kept) {
    ctx->save_for_backward({q, k, v, sinks.value_or(at::Tensor())});
    ctx->saved_data["kept"] = c10::IValue::make_capsule(kept);
    AttentionParams params = kept->params;
    params.sinks = sinks;
    return Forward(q, k, v, kept->chunks, params);
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto kept =
        c10::static_intrusive_pointer_cast<KeptAttention>(ctx->saved_data["kept"].toCapsule());
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor& q = saved[0];
    const at::Tensor& k = saved[1];
    const at::Tensor& v = saved[2];
    const at::Tensor& sinks = saved[3];
    const at::ScalarType wide = q.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
    const auto wide_zeros = [wide](const at::Tensor& like) {
      return at::zeros(like.sizes(), like.options().dtype(wide).requires_grad(false));
    };
    at::Tensor grad_q = at::empty(q.sizes(), q.options().requires_grad(false));
    // Several chunks add to these.
    at::Tensor grad_k = wide_zeros(k);
    at::Tensor grad_v = wide_zeros(v);
    at::Tensor grad_sinks = sinks.defined() ? wide_zeros(sinks) : at::Tensor();
    for (const Chunk& chunk : kept->chunks) {
      const at::AutoGradMode with_graph(true);
      const auto leaf = [](const at::Tensor& x) { return x.detach().requires_grad_(); };
      variable_list inputs = {leaf(chunk.Queries(q)), leaf(chunk.Keys(k)), leaf(chunk.Keys(v))};
      AttentionParams params = kept->params;
      if (sinks.defined()) {
        inputs.push_back(leaf(sinks));
        params.sinks = inputs.back();
      }
      const at::Tensor out = eager::Attention(inputs[0], inputs[1], inputs[2], params,
                                              chunk.key_position, chunk.ahead);
      const variable_list found = torch::autograd::grad({out}, inputs, {chunk.Queries(grads[0])});
      const at::NoGradGuard no_grad;
      chunk.Queries(grad_q).copy_(found[0]);
      chunk.Keys(grad_k).add_(found[1]);
      chunk.Keys(grad_v).add_(found[2]);
      if (sinks.defined()) grad_sinks.add_(found[3]);
    }
    if (sinks.defined()) grad_sinks = grad_sinks.to(sinks.scalar_type());
    return {grad_q, grad_k.to(k.scalar_type()), grad_v.to(v.scalar_type()), grad_sinks,
            at::Tensor()};
  }
};

}  // namespace

at::Tensor ChunkedAttention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            const at::Tensor& cu_seqlens, const AttentionParams& params,
                            int64_t scores_at_once, const at::Tensor& seen_ends) {
  std::vector<Chunk> chunks =
      ChunksOf(cu_seqlens, q.size(1), params.window, seen_ends, scores_at_once);
  if (!NeedsGraph({q, k, v, params.sinks.value_or(at::Tensor())})) {
    return Forward(q, k, v, chunks, params);
  }
  AttentionParams given = params;
  given.sinks.reset();
  return ChunkedFunction::apply(
      q, k, v, params.sinks,
      c10::make_intrusive<KeptAttention>(std::move(chunks), std::move(given)));
}

}  // namespace tandem::model
