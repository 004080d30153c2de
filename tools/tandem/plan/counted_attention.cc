// CountedOps: attention, from the projections to what the output projection takes.
#include <algorithm>

#include "common/model/delta_sizes.h"
#include "common/model/score_chunk.h"
#include "tools/tandem/plan/counted_ops.h"

namespace tandem::plan {
namespace {

// Working memory of linear attention on a GPU (cuda_delta_forward.cc): what the recurrence reads, and
// its results.
int64_t DeltaForwardFloats(const model::DeltaSpec& spec, int64_t tokens) {
  return tokens * (spec.convolved_size() + 2 * spec.num_value_heads + spec.value_size());
}

// That of its backward pass, where it is the most: the same, with the values' gradients and errors; the
// states at boundaries and their gradients; and of the heads that have their turn six products of a
// chunk's tokens with each other, three of them with boundaries, and four scaled copies of values.
int64_t DeltaBackwardFloats(const model::DeltaSpec& spec, int64_t tokens, int64_t sequences) {
  constexpr int64_t kChunk = model::kDeltaChunkOnGpu;
  // Sequences begin chunks of their own.
  const int64_t places = tokens + sequences * (kChunk - 1);
  const int64_t boundaries =
      2 * (places / kChunk) * spec.num_value_heads * spec.value_dim * spec.key_dim;
  const int64_t turns = std::clamp<int64_t>(
      (boundaries * kFloat + model::kDeltaBoundaryBytesOnGpu - 1) / model::kDeltaBoundaryBytesOnGpu,
      1, spec.num_key_heads);
  const int64_t of_heads =
      places * spec.num_value_heads * (6 * kChunk + 3 * spec.key_dim + 4 * spec.value_dim);
  return DeltaForwardFloats(spec, places) + 2 * places * (spec.value_size() + spec.key_size()) +
         (boundaries + of_heads) / turns;
}

}  // namespace

CountedTensor CountedOps::Limited(const Tensor& qkv) {
  if (attention_.clip_qkv <= 0) return qkv;
  const Tensor out = New(qkv.bytes());
  // The gradient needs to know which elements were limited.
  Record([this, qkv, gradient = out.gradient()] {
    const Size grad = gradient->Take();
    qkv.gradient()->Give(Take(qkv.bytes()));
  });
  return out;
}

CountedTensor CountedOps::AppendKeys(const Tensor& qk) {
  const Tensor out = New(batch_.Bytes(HeadColumns(heads_, kv_heads_)));
  // Gradients of keys as keys, and as values between zeros, are added.
  Record([this, bytes = qk.bytes(), qk = qk.gradient(), gradient = out.gradient()] {
    const Size grad = gradient->Take();
    const Size as_values = Take(bytes);
    qk->Give(Take(bytes));
  });
  return out;
}

CountedOps::Heads CountedOps::Rotate(const Tensor& qkv, const model::AttentionParameters& at) {
  const bool plain = batch_.kernels == setup::Kernels::kPlain;
  const bool normed = attention_.qk_norm.has_value();
  const int64_t rotated_heads = heads_ + (attention_.reads_other_kv() ? 0 : kv_heads_);
  // On a GPU plain operations differentiate a rotation that the fused kernel does not compute: the
  // norms' float32 copies; halves of the rotation and their sum.
  const int64_t wide_copies = !normed ? 0 : batch_.element_bytes != kFloat ? 2 : 1;
  const int64_t temporary_bytes =
      plain ? batch_.tokens * (3 * heads_ + wide_copies * rotated_heads) * head_dim_ * kFloat : 0;

  Heads out{New(batch_.Bytes(rotated_heads * head_dim_)), qkv.storage()};
  // The fused rotation keeps them; the general one computes them again.
  const bool fused = normed && attention_.qk_norm->IsPlain();
  const int64_t num_moments = fused && tape_ != nullptr ? 1 : 0;
  const Tensor moments = New(num_moments * batch_.tokens * rotated_heads * kFloat);
  Recompute(out.qk);
  // A norm of values takes them out of the projection, and keeps them.
  const bool norms_values = attention_.value_norm.has_value();
  const int64_t value_bytes = norms_values ? batch_.Bytes(kv_heads_ * value_dim_) : 0;
  const Tensor values = New(value_bytes);
  const Tensor value_moments =
      New(norms_values && tape_ != nullptr ? batch_.tokens * kv_heads_ * kFloat : 0);
  if (norms_values) {
    const Tensor normed_values = New(value_bytes);
    Recompute(normed_values);
    out.v = normed_values.storage();
  }
  // Only the gradient of a norm needs the projection.
  Record([this, temporary_bytes, value_bytes, bytes = qkv.bytes(), at, moments, values,
          value_moments, saved = normed ? qkv.storage() : nullptr, qkv = qkv.gradient(),
          gradient = out.qk.gradient()] {
    const Size grad = gradient->Take();
    const Size grad_values = Take(value_bytes);
    {
      const Size temporary = Take(temporary_bytes);
      qkv->Give(Take(bytes));
    }
    AddRowSumGradients({at.q_norm.weight, at.q_norm.bias});
    AddRowSumGradients({at.k_norm.weight, at.k_norm.bias});
  });
  return out;
}

CountedTensor CountedOps::Gate(const Tensor& attended, const Tensor& gate) {
  // The plain operations widen both, and keep the sigmoid.
  const bool plain = batch_.kernels != setup::Kernels::kCpu;
  const Tensor wide = New(plain ? 3 * attended.bytes() / batch_.element_bytes * kFloat : 0);
  const Tensor out = New(attended.bytes());
  Recompute(out);
  Record([this, attended, gate, wide, gradient = out.gradient()] {
    const Size grad = gradient->Take();
    attended.gradient()->Give(Take(attended.bytes()));
    gate.gradient()->Give(Take(gate.bytes()));
  });
  return out;
}

CountedTensor CountedOps::AttendLinearly(const Tensor& projected,
                                         const model::DeltaParameters& at) {
  const model::DeltaSpec spec = model::PartOf(*attention_.delta, table_.tensor_parallel());
  const bool on_gpu = batch_.kernels == setup::Kernels::kPlain;
  // Each sequence has sums of its own for the gradients of parameters; on a GPU there is working memory
  // beside which sums of blocks of rows do not count.
  const int64_t sums = batch_.sequences * (spec.convolved_size() * spec.kernel_size +
                                           2 * spec.num_value_heads + spec.value_size());
  const Size working = Take(on_gpu ? DeltaForwardFloats(spec, batch_.tokens) * kFloat : 0);
  const Tensor out = New(batch_.Bytes(spec.value_size()));
  const int64_t parts_floats =
      on_gpu ? DeltaBackwardFloats(spec, batch_.tokens, batch_.sequences) : sums;
  Record([this, projected, parts_floats, at, gradient = out.gradient()] {
    const Size grad = gradient->Take();
    projected.gradient()->Give(Take(projected.bytes()));
    const Size parts = Take(parts_floats * kFloat);
    for (const int parameter : {at.convolution_weight, at.a_log, at.dt_bias, at.norm.weight}) {
      AddMatrixGradient(parameter);
    }
  });
  return out;
}

CountedTensor CountedOps::Replicated(const Tensor& x, int weight, int bias) {
  return Linear(x, weight, bias);
}

CountedTensor CountedOps::Columns(const Tensor& x, int64_t begin, int64_t size) {
  const Tensor out = New(batch_.Bytes(size));
  // The gradient is one of all columns, zero in the others.
  Record([this, bytes = x.bytes(), x = x.gradient(), gradient = out.gradient()] {
    const Size grad = gradient->Take();
    if (x != nullptr) x->Give(Take(bytes));
  });
  return out;
}

CountedOps::Heads CountedOps::Join(const Tensor& q, const Tensor& shared, const Tensor& kv) {
  // The plain operations widen what rotates, and keep the parts until they are joined.
  const bool plain = batch_.kernels != setup::Kernels::kCpu;
  const int64_t rope_dim = attention_.latent->rope_dim;
  const Size temporary = Take(plain ? 3 * batch_.tokens * heads_ * rope_dim * kFloat : 0);
  const Heads out{New(batch_.Bytes(HeadColumns(heads_, kv_heads_))), nullptr};
  Record([this, q_bytes = q.bytes(), kv_bytes = kv.bytes(), shared_bytes = shared.bytes(),
          q = q.gradient(), shared = shared.gradient(), kv = kv.gradient(),
          gradient = out.qk.gradient()] {
    const Size grad = gradient->Take();
    q->Give(Take(q_bytes));
    shared->Give(Take(shared_bytes));
    kv->Give(Take(kv_bytes));
  });
  return out;
}

int64_t CountedOps::AttentionBytes(int64_t columns) const {
  return batch_.attention_tokens * columns * batch_.element_bytes;
}

CountedOps::Heads CountedOps::ToHeads(const Heads& heads) {
  const int64_t bytes = AttentionBytes(HeadColumns(attention_heads_, attention_kv_heads_));
  const int64_t own_bytes = batch_.Bytes(HeadColumns(heads_, kv_heads_));
  // Heads are concatenated to be sent, and arrive in a tensor of their own.
  const Size sent = Take(bytes);
  Heads out{New(bytes), nullptr};
  Record([this, own_bytes, own = heads.qk.gradient(), gradient = out.qk.gradient()] {
    const Size grad = gradient->Take();
    own->Give(Take(own_bytes));
  });
  return out;
}

CountedTensor CountedOps::Scores(const Heads& heads) {
  const int64_t n = batch_.longest_sequence;
  int64_t scores_bytes = 0;
  int64_t temporary_bytes = 0;
  int64_t backward_bytes = 0;
  if (batch_.kernels == setup::Kernels::kPlain) {
    // The fused kernels add the gradient of q in float32, and have those of k and v once for every
    // query head.
    backward_bytes = batch_.attention_tokens * attention_heads_ *
                     (head_dim_ * kFloat + (head_dim_ + value_dim_) * batch_.element_bytes);
    if (batch_.sees_ahead) {
      // Of a chunk: products, scaled, masked, and their softmax; behind them the gradients of two.
      const int64_t chunk = std::min(model::kScoresAtOnce, attention_heads_ * n * n) * kFloat;
      temporary_bytes = 4 * chunk;
      backward_bytes = 6 * chunk + batch_.attention_tokens * attention_kv_heads_ *
                                       (head_dim_ + value_dim_) * kFloat;
    }
  } else if (batch_.kernels == setup::Kernels::kCpuPlainScores) {
    // For each sequence: softmax [heads, n, n] and the mask [n, n]; q, k and v widened, k and v
    // repeated for every head.
    scores_bytes =
        batch_.sequences * (attention_heads_ * n * n * kFloat + n * n) +
        batch_.attention_tokens * HeadColumns(attention_heads_, attention_heads_) * kFloat;
    // Products before and after the mask, or their gradients.
    temporary_bytes = 2 * attention_heads_ * n * n * kFloat;
    backward_bytes = temporary_bytes;
  }
  const Size temporary = Take(temporary_bytes);
  const Tensor scores = New(scores_bytes);
  const Tensor out = New(AttentionBytes(attention_heads_ * value_dim_));
  const Tensor log_sum_exp =
      New(tape_ == nullptr ? 0 : batch_.attention_tokens * attention_heads_ * kFloat);
  const int64_t gradient_bytes = AttentionBytes(HeadColumns(attention_heads_, attention_kv_heads_));
  Record([this, backward_bytes, gradient_bytes, heads, scores, out, log_sum_exp] {
    const Size grad = out.gradient()->Take();
    const Size temporary = Take(backward_bytes);
    heads.qk.gradient()->Give(Take(gradient_bytes));
  });
  return out;
}

CountedTensor CountedOps::ToTokens(const Tensor& attended) {
  const Size received = Take(attended.bytes());
  const Tensor out = New(batch_.Bytes(heads_ * value_dim_));
  Record([this, bytes = attended.bytes(), own = attended.gradient(), gradient = out.gradient()] {
    const Size grad = gradient->Take();
    own->Give(Take(bytes));
  });
  return out;
}

CountedTensor CountedOps::Attend(const Tensor& qkv, const model::AttentionParameters& at) {
  const Tensor limited = Limited(qkv);
  const Heads heads = Rotate(attention_.values_are_keys ? AppendKeys(limited) : limited, at);
  if (carried_.makes_kv) {
    made_kv_ = New(KvBytes());
    // The gradient's parts are added to those of keys and values.
    Record([gradient = made_kv_.gradient()] { gradient->Take(); });
  }
  return AttendHeads(heads);
}

CountedTensor CountedOps::AttendToOthers(const Tensor& queries,
                                         const model::AttentionParameters& at) {
  Heads heads = Rotate(Limited(queries), at);
  heads.v = carried_.kv.storage();
  // The gradients of keys and values are put together.
  Record([this, kv = carried_.kv.gradient()] {
    if (kv != nullptr) kv->Give(Take(KvBytes()));
  });
  return AttendHeads(heads);
}

CountedTensor CountedOps::AttendLatent(const Tensor& q, const Tensor& shared, const Tensor& kv) {
  return AttendHeads(Join(q, CopyToRanks(shared), kv));
}

CountedTensor CountedOps::AttendHeads(const Heads& own) {
  if (batch_.sequence_ranks == 1) return Scores(own);
  const Heads heads = ToHeads(own);
  const Tensor attended = Scores(heads);
  return ToTokens(attended);
}

}  // namespace tandem::plan
