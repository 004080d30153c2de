// CountedOps: routers and experts.
#include <algorithm>
#include <cmath>

#include "tools/tandem/plan/counted_ops.h"

namespace tandem::plan {
namespace {

constexpr int64_t kIndex = 8;  // bytes

}  // namespace

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

}  // namespace tandem::plan
