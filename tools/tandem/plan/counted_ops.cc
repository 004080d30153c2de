#include "tools/tandem/plan/counted_ops.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "common/model/delta_sizes.h"
#include "common/model/score_chunk.h"

namespace tandem::plan {
namespace {

constexpr int64_t kFloat = 4;  // bytes
constexpr int64_t kIndex = 8;

// Numbers that a norm saves of a row: 1 / its deviation, and the mean of a LayerNorm.
int64_t NumMoments(const model::NormSpec& spec) {
  return spec.kind == model::NormKind::kLayer ? 2 : 1;
}

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

void CountedRecomputation::Drop() {
  // One reference is ours.
  std::erase_if(results_, [](const Result& result) { return result.storage.use_count() == 1; });
  for (const Result& result : results_) result.storage->reset();
}

void CountedRecomputation::Restore() {
  for (const Result& result : results_) *result.storage = result.take();
  results_.clear();
}

CountedOps::CountedOps(MemoryLedger& ledger, const model::ParameterTable& table,
                       const CountedBatch& batch, const model::AttentionSpec& attention,
                       CountedTape* tape, CountedRecomputation* recomputation,
                       std::vector<Size>& gradients)
    : ledger_(ledger),
      table_(table),
      batch_(batch),
      tape_(tape),
      recomputation_(recomputation),
      gradients_(gradients),
      attention_(attention),
      head_dim_(attention.head_dim),
      value_dim_(attention.value_dim()),
      heads_(model::PartOf(attention, table.tensor_parallel()).heads.size()),
      kv_heads_(model::PartOf(attention, table.tensor_parallel()).kv_heads.size()),
      attention_heads_(heads_ / batch.sequence_ranks),
      // A key-value head that several ranks need is copied to each.
      attention_kv_heads_(std::max<int64_t>(1, kv_heads_ / batch.sequence_ranks)) {}

void CountedOps::Record(std::function<void()> backward) {
  if (tape_ != nullptr) tape_->Record(std::move(backward));
}

void CountedOps::Recompute(const Tensor& result) {
  if (recomputation_ == nullptr) return;
  recomputation_->Add(result.storage(), [this, bytes = result.bytes()] { return Take(bytes); });
}

bool CountedOps::IsTrainable(int parameter) const {
  return parameter >= 0 && table_.parameter(parameter).trainable;
}

void CountedOps::AddMatrixGradient(int parameter) {
  if (!IsTrainable(parameter)) return;
  gradients_.push_back(ledger_.Take(MemoryKind::kGradientBuffers,
                                    table_.parameter(parameter).numel * batch_.element_bytes));
}

void CountedOps::AddRowSumGradients(std::initializer_list<int> parameters) {
  int64_t numel = 0;
  for (const int parameter : parameters) {
    if (IsTrainable(parameter)) numel += table_.parameter(parameter).numel;
  }
  if (numel == 0) return;
  // float32 sums of up to 64 blocks of rows (cpu_dispatch.cc, SumOverRows), on a GPU of 512
  // (row_gradients.cu).
  const bool on_gpu = batch_.kernels == setup::Kernels::kPlain;
  const int64_t rows = on_gpu ? 1 : std::max<int64_t>(64, (batch_.tokens + 63) / 64);
  const int64_t blocks =
      std::clamp<int64_t>((batch_.tokens + rows - 1) / rows, 1, on_gpu ? 512 : 64);
  const Size sums = ledger_.Take(MemoryKind::kGradientBuffers, blocks * numel * kFloat);
  // The gradients are views of the first block on a CPU, unless they are rounded to another type.
  const bool rounds = on_gpu || batch_.element_bytes != kFloat;
  gradients_.push_back(
      rounds ? ledger_.Take(MemoryKind::kGradientBuffers, numel * batch_.element_bytes) : sums);
}

CountedOps::Normed CountedOps::NormOf(const Residual& in, const model::NormSpec& spec,
                                      const model::NormParameters& norm) {
  const int64_t bytes = in.x.bytes();
  Normed out{in.x, {}};
  if (in.delta.defined()) out.residual = New(bytes);
  out.normed = New(bytes);
  const bool has_graph =
      in.x.gradient() || in.delta.gradient() || IsTrainable(norm.weight) || IsTrainable(norm.bias);
  if (!has_graph) {
    out.normed = out.normed.Constant();
    return out;
  }
  const Tensor moments = New(tape_ == nullptr ? 0 : NumMoments(spec) * batch_.tokens * kFloat);
  // Without a delta the residual is x itself, to whose gradient this adds.
  Record([this, bytes, norm, moments, summed = in.delta.defined(), x = in.x.gradient(),
          delta = in.delta.gradient(), residual = out.residual, gradient = out.normed.gradient()] {
    const Size grad_normed = gradient->Take();
    const Size grad_residual = summed ? residual.gradient()->Take() : nullptr;
    const Size grad_x = Take(bytes);
    AddRowSumGradients({norm.weight, norm.bias});
    if (x != nullptr) x->Give(grad_x);
    if (summed) delta->Give(grad_x);
  });
  return out;
}

CountedOps::Normed CountedOps::AddNorm(const Residual& in, const model::NormSpec& spec,
                                       const model::NormParameters& norm) {
  const Normed out = NormOf(in, spec, norm);
  Recompute(out.normed);
  return out;
}

CountedTensor CountedOps::Normalize(const Tensor& x, const model::NormSpec& spec,
                                    const model::NormParameters& norm) {
  return NormOf({x, {}}, spec, norm).normed;
}

CountedTensor CountedOps::Scale(const Tensor& x, double factor) {
  if (factor == 1.0) return x;
  const Tensor out = New(x.bytes());
  Record([this, bytes = x.bytes(), x = x.gradient(), gradient = out.gradient()] {
    const Size grad = gradient->Take();
    x->Give(Take(bytes));
  });
  return out;
}

CountedTensor CountedOps::ScaleElements(const Tensor& x, int scale) {
  const Tensor out = New(x.bytes());
  // The factors' gradient is summed over the rows of a product with x, which it keeps.
  Record([this, bytes = x.bytes(), scale, saved = IsTrainable(scale) ? x.storage() : nullptr,
          x = x.gradient(), gradient = out.gradient()] {
    const Size grad = gradient->Take();
    if (x != nullptr) x->Give(Take(bytes));
    if (!IsTrainable(scale)) return;
    const Size product = Take(bytes);
    AddMatrixGradient(scale);
  });
  return out;
}

CountedTensor CountedOps::Linear(const Tensor& x, int weight, int bias) {
  const Tensor out = New(batch_.Bytes(table_.parameter(weight).shape[0]));
  Record([this, x, weight, bias, gradient = out.gradient()] {
    const Size grad = gradient->Take();
    if (x.gradient() != nullptr) x.gradient()->Give(Take(x.bytes()));
    AddMatrixGradient(weight);
    AddRowSumGradients({bias});
  });
  return out;
}

CountedTensor CountedOps::LinearInFloat32(const Tensor& x, int weight) {
  // The plain operations keep x widened.
  const bool widens = batch_.kernels != setup::Kernels::kCpu && batch_.element_bytes != kFloat;
  const Tensor wide = New(widens ? x.bytes() / batch_.element_bytes * kFloat : 0);
  const Tensor out = New(batch_.tokens * table_.parameter(weight).shape[0] * kFloat);
  Record([this, x, wide, weight, gradient = out.gradient()] {
    const Size grad = gradient->Take();
    const Size grad_wide = Take(wide.bytes());
    if (x.gradient() != nullptr) x.gradient()->Give(Take(x.bytes()));
    AddMatrixGradient(weight);
  });
  return out;
}

CountedTensor CountedOps::CopyToRanks(const Tensor& x) {
  if (batch_.tensor_ranks == 1 || x.gradient() == nullptr) return x;
  const Tensor copied = x.View();
  Record([this, bytes = x.bytes(), x = x.gradient(), gradient = copied.gradient()] {
    const Size own = gradient->Take();
    x->Give(Take(bytes));
  });
  return copied;
}

CountedTensor CountedOps::ColumnParallel(const Tensor& x, int weight, int bias, const char* tag) {
  return Linear(CopyToRanks(x), weight, bias);
}

CountedTensor CountedOps::SumOverRanks(const Tensor& x) {
  const Tensor sum = New(x.bytes());
  Record([own = x.gradient(), gradient = sum.gradient()] { own->Give(gradient->Take()); });
  return sum;
}

CountedTensor CountedOps::RowParallel(const Tensor& x, int weight, int bias, const char* tag) {
  if (batch_.tensor_ranks == 1) return Linear(x, weight, bias);
  const Tensor sum = SumOverRanks(Linear(x, weight, -1));
  if (bias < 0) return sum;
  const Tensor out = New(sum.bytes());
  Record([this, bias, sum = sum.gradient(), gradient = out.gradient()] {
    const Size grad = gradient->Take();
    AddMatrixGradient(bias);
    sum->Give(grad);
  });
  return out;
}

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

CountedTensor CountedOps::Activate(const Tensor& gate_up, const model::FeedForwardSpec& spec,
                                   int alphas) {
  const int64_t out_bytes = gate_up.bytes() / (spec.gated ? 2 : 1);
  // On a GPU plain operations differentiate an activation with parameters, from float32 copies.
  const bool plain = batch_.kernels == setup::Kernels::kPlain && alphas >= 0;
  const int64_t wide_bytes = plain ? 2 * out_bytes / batch_.element_bytes * kFloat : 0;
  const Tensor out = New(out_bytes);
  Recompute(out);
  Record([this, wide_bytes, gate_up, alphas, gradient = out.gradient()] {
    const Size grad = gradient->Take();
    const Size temporary = Take(wide_bytes);
    gate_up.gradient()->Give(Take(gate_up.bytes()));
    AddMatrixGradient(alphas);
  });
  return out;
}

CountedTensor CountedOps::GateInput(const Tensor& gate, const model::InputGateSpec& spec) {
  const Tensor joined = New(gate.bytes() + carried_.input.bytes());
  // The gradients of both are parts of one tensor.
  Record([gate = gate.gradient(), input = carried_.input.gradient(), gradient = joined.gradient()] {
    const Size grad = gradient->Take();
    gate->Give(grad);
    if (input != nullptr) input->Give(grad);
  });
  return Activate(joined, {.activation = spec.activation, .gated = true}, /*alphas=*/-1);
}

CountedTensor CountedOps::AddRouterBias(const Tensor& logits, int bias) {
  const Tensor sum = New(logits.bytes());
  Record([this, bias, logits = logits.gradient(), gradient = sum.gradient()] {
    const Size grad = gradient->Take();
    AddMatrixGradient(bias);
    logits->Give(grad);
  });
  return sum;
}

CountedTensor CountedOps::ScaleByExpert(const Tensor& weights, int scales) {
  const Tensor chosen = New(weights.bytes());
  const Tensor out = New(weights.bytes());
  Record([this, weights, chosen, scales, gradient = out.gradient()] {
    const Size grad = gradient->Take();
    weights.gradient()->Give(Take(weights.bytes()));
    if (!IsTrainable(scales)) return;
    const Size of_chosen = Take(weights.bytes());
    AddMatrixGradient(scales);
  });
  return out;
}

CountedOps::Routing CountedOps::Route(const Tensor& x, const model::RoutingSpec& spec,
                                      const model::RouterParameters& at) {
  const Tensor products = LinearInFloat32(x, at.weight);
  const Tensor biased = at.bias < 0 ? products : AddRouterBias(products, at.bias);
  const Tensor logits = Scale(biased, spec.logit_scale);
  const int64_t rows = batch_.tokens * spec.top_k;
  const Tensor experts = New(rows * kIndex);
  // The plain operations keep the softmax, and sort all logits.
  const bool plain = batch_.kernels != setup::Kernels::kCpu;
  const Tensor softmax = New(plain ? logits.bytes() : 0);
  const int64_t computed =
      batch_.expert_ranks == 1
          ? rows
          : static_cast<int64_t>(std::ceil(static_cast<double>(rows) * batch_.expert_load));
  Routing out{New(rows * kFloat), nullptr, rows, computed, spec.weigh_inputs};
  Record([this, logits, experts, softmax, weights = out.weights.storage(),
          gradient = out.weights.gradient()] {
    const Size grad = gradient->Take();
    logits.gradient()->Give(Take(logits.bytes()));
  });
  // An exchange has two orders of rows besides.
  if (at.expert_scales >= 0) out.weights = ScaleByExpert(out.weights, at.expert_scales);
  const int64_t in_orders = batch_.expert_ranks > 1 ? 2 * computed : 0;
  out.places = New((2 * rows + in_orders) * kIndex).storage();
  return out;
}

CountedTensor CountedOps::Exchange(const Tensor& rows, int64_t bytes, int64_t computed_bytes) {
  // There, what arrives is put in order; back, what leaves.
  const Size ordered = Take(computed_bytes);
  const Tensor out = New(bytes);
  Record([this, bytes = rows.bytes(), computed_bytes, own = rows.gradient(),
          gradient = out.gradient()] {
    const Size grad = gradient->Take();
    if (own == nullptr) return;
    const Size ordered = Take(computed_bytes);
    own->Give(Take(bytes));
  });
  return out;
}

// The rows times their weights.
CountedTensor CountedOps::Weigh(const Tensor& rows, const Routing& routing) {
  const Tensor weights = CopyToRanks(routing.weights);
  const Tensor by_row = New(weights.bytes());
  Record([this, bytes = weights.bytes(), places = routing.places, weights = weights.gradient(),
          gradient = by_row.gradient()] {
    const Size grad = gradient->Take();
    weights->Give(Take(bytes));
  });
  // The plain operations widen the rows.
  const bool widens = batch_.kernels != setup::Kernels::kCpu && batch_.element_bytes != kFloat;
  const Tensor wide = New(widens ? rows.bytes() / batch_.element_bytes * kFloat : 0);
  const Tensor out = New(rows.bytes());
  if (batch_.expert_ranks == 1) Recompute(out);
  Record([this, rows, by_row, wide, gradient = out.gradient()] {
    const Size grad = gradient->Take();
    rows.gradient()->Give(Take(rows.bytes()));
    by_row.gradient()->Give(Take(by_row.bytes()));
  });
  return out;
}

CountedTensor CountedOps::Dispatch(const Tensor& x, const Routing& routing) {
  const Tensor copied = CopyToRanks(x);
  const Tensor rows = New(routing.num_rows * batch_.hidden * batch_.element_bytes);
  if (batch_.expert_ranks == 1) Recompute(rows);
  Record([this, bytes = x.bytes(), places = routing.places, x = copied.gradient(),
          gradient = rows.gradient()] {
    const Size grad = gradient->Take();
    if (x != nullptr) x->Give(Take(bytes));
  });
  const Tensor out = routing.weigh_inputs ? Weigh(rows, routing) : rows;
  if (batch_.expert_ranks == 1) return out;
  const int64_t bytes = routing.num_computed * batch_.hidden * batch_.element_bytes;
  return Exchange(out, bytes, bytes);
}

CountedTensor CountedOps::ExpertColumnParallel(const Tensor& rows, const model::ExpertMatrices& at,
                                               const Routing& routing) {
  const int64_t columns = table_.parameter(at.weights.front()).shape[0];
  const Tensor out = New(routing.num_computed * columns * batch_.element_bytes);
  Record([this, rows, at, num_rows = routing.num_computed, gradient = out.gradient()] {
    const Size grad = gradient->Take();
    if (rows.gradient() != nullptr) rows.gradient()->Give(Take(rows.bytes()));
    const auto reached = std::min(static_cast<int64_t>(at.weights.size()), num_rows);
    for (int64_t e = 0; e < reached; ++e) {
      AddMatrixGradient(at.weights[e]);
      if (!at.biases.empty()) AddMatrixGradient(at.biases[e]);
    }
  });
  return out;
}

// Split over ranks, it copies the biases, which are small beside the rows.
CountedTensor CountedOps::ExpertRowParallel(const Tensor& rows, const model::ExpertMatrices& at,
                                            const Routing& routing) {
  return ExpertColumnParallel(rows, at, routing);
}

CountedTensor CountedOps::Combine(const Tensor& of_experts, const Routing& routing) {
  const Tensor results =
      batch_.expert_ranks == 1
          ? of_experts
          : Exchange(of_experts, routing.num_rows * batch_.hidden * batch_.element_bytes,
                     of_experts.bytes());
  if (routing.weigh_inputs) return SumOfExperts(results, routing);
  const Tensor weights = CopyToRanks(routing.weights);
  // The plain operations gather the results by token, and multiply them, in float32.
  const bool plain = batch_.kernels != setup::Kernels::kCpu;
  const int64_t floats = results.bytes() / batch_.element_bytes * kFloat;
  const Tensor wide = New(plain ? 2 * floats : 0);
  const Tensor out = New(batch_.Bytes(batch_.hidden));
  Record([this, results, weights, wide, places = routing.places, gradient = out.gradient()] {
    const Size grad = gradient->Take();
    results.gradient()->Give(Take(results.bytes()));
    weights.gradient()->Give(Take(weights.bytes()));
  });
  return batch_.tensor_ranks == 1 ? out : SumOverRanks(out);
}

CountedTensor CountedOps::SumOfExperts(const Tensor& results, const Routing& routing) {
  // The plain operations gather the results by token, and multiply them by 1, in float32.
  const bool plain = batch_.kernels != setup::Kernels::kCpu;
  const int64_t floats = results.bytes() / batch_.element_bytes * kFloat;
  const Tensor wide = New(plain ? 2 * floats : 0);
  const Tensor out = New(batch_.Bytes(batch_.hidden));
  Record([this, bytes = results.bytes(), wide, places = routing.places,
          results = results.gradient(), gradient = out.gradient()] {
    const Size grad = gradient->Take();
    results->Give(Take(bytes));
  });
  return batch_.tensor_ranks == 1 ? out : SumOverRanks(out);
}

CountedTensor CountedOps::AddGated(const Tensor& routed, const Tensor& shared, const Tensor& x,
                                   int gate) {
  const Tensor logits = LinearInFloat32(x, gate);
  const Tensor weights = New(logits.bytes());
  Record([this, logits, weights = weights.storage(), gradient = weights.gradient()] {
    const Size grad = gradient->Take();
    logits.gradient()->Give(Take(logits.bytes()));
  });
  const Tensor scaled = New(shared.bytes());
  Record([this, shared, weights, gradient = scaled.gradient()] {
    const Size grad = gradient->Take();
    shared.gradient()->Give(Take(shared.bytes()));
    weights.gradient()->Give(Take(weights.bytes()));
  });
  return Sum({routed, scaled});
}

CountedTensor CountedOps::Sum(const Residual& in) {
  if (!in.delta.defined()) return in.x;
  const Tensor out = New(in.x.bytes());
  Record([x = in.x.gradient(), delta = in.delta.gradient(), gradient = out.gradient()] {
    const Size grad = gradient->Take();
    if (x != nullptr) x->Give(grad);
    delta->Give(grad);
  });
  return out;
}

}  // namespace tandem::plan
