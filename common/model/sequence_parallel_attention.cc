#include "common/model/sequence_parallel_attention.h"

#include <ATen/ops/cat.h>

#include "common/model/tensor_collectives.h"

namespace tandem::model {
namespace {

// Reshapes [tokens, heads, dim] to [ranks, tokens, heads of each rank, dim]; repeats heads if there
// are fewer heads than ranks.
at::Tensor ByRank(const at::Tensor& x, int64_t ranks) {
  const int64_t heads = x.size(1);
  const at::Tensor all = heads % ranks == 0 ? x : x.repeat_interleave(ranks / heads, 1);
  return all.unflatten(1, {ranks, all.size(1) / ranks}).transpose(0, 1);
}

}  // namespace

at::Tensor SequenceParallelAttention::Forward(int64_t layer, const at::Tensor& q,
                                              const at::Tensor& k, const at::Tensor& v,
                                              const AttentionParams& params) {
  const int64_t ranks = group_.size();
  const int64_t tokens = q.size(0);
  const at::Tensor queries = ByRank(q, ranks);
  const at::Tensor keys = ByRank(k, ranks);
  const at::Tensor values = ByRank(v, ranks);
  const int64_t q_heads = queries.size(2);
  const int64_t kv_heads = keys.size(2);
  const auto flat = [](const at::Tensor& x) { return x.flatten(2); };
  // One exchange for queries, keys and values: three would wait for the network three times.
  // [all tokens, (q_heads + kv_heads) * head_dim + kv_heads * v_head_dim]
  const at::Tensor heads = ExchangeSlices(at::cat({flat(queries), flat(keys), flat(values)}, 2),
                                          &group_, "attention, tokens to heads")
                               .flatten(0, 1);
  const int64_t k_column = q_heads * q.size(2);
  const int64_t v_column = k_column + kv_heads * k.size(2);
  const auto part = [&heads](int64_t column, int64_t count, int64_t dim) {
    return heads.narrow(1, column, count * dim).unflatten(1, {count, dim});
  };
  AttentionParams own = params;
  if (params.sinks.has_value()) {
    // The gradient, like every parameter's here, is a rank's part: that of its heads.
    own.sinks = params.sinks->narrow(0, group_.rank() * q_heads, q_heads);
  }
  own.alibi.first_head += group_.rank() * q_heads;
  const at::Tensor attended =  // [all tokens, q_heads * v_head_dim]
      whole_.Forward(layer, part(0, q_heads, q.size(2)), part(k_column, kv_heads, k.size(2)),
                     part(v_column, kv_heads, v.size(2)), own);
  return ExchangeSlices(attended.view({ranks, tokens, -1}), &group_, "attention, heads to tokens")
      .transpose(0, 1)
      .flatten(1);
}

}  // namespace tandem::model
