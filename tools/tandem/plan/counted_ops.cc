#include "tools/tandem/plan/counted_ops.h"

#include <algorithm>
#include <utility>

namespace tandem::plan {
namespace {

// Numbers that a norm saves of a row: 1 / its deviation, and the mean of a LayerNorm.
int64_t NumMoments(const model::NormSpec& spec) {
  return spec.kind == model::NormKind::kLayer ? 2 : 1;
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
