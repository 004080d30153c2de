#include "common/model/expert_rows.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/scatter.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "common/model/cpu_dispatch.h"
#include "common/model/device_experts.h"
#include "common/model/device_row_ops.h"
#include "common/model/eager_ops.h"
#include "common/model/gather_rows.h"
#include "common/model/kernels/expert_rows.h"
#include "common/model/optional_tensor.h"
#include "common/model/step_memory.h"

namespace tandem::model {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Whether kernels of a CPU or of a GPU take the rows.
bool OursTake(const at::Tensor& rows) { return KernelsTake({rows}) || device::KernelsTake({rows}); }

const int64_t* PlacesOf(const at::Tensor& places) { return DataOrNull<int64_t>(places); }

// out[i] = sum of weights[i, j] rows[places[i, j]]. Undefined places: row i alone; undefined
// weights: all 1.
at::Tensor SumRows(const at::Tensor& rows, const at::Tensor& places, const at::Tensor& weights) {
  if (device::KernelsTake({rows})) return device::SumRows(rows, places, weights);
  const at::Tensor& shape = places.defined() ? places : weights;
  kernels::WeightedSum args{ElementOf(rows), rows.size(1), shape.size(1)};
  at::Tensor out = EmptyTensor({shape.size(0), args.size}, rows.options().requires_grad(false));
  args.rows = rows.const_data_ptr();
  args.places = PlacesOf(places);
  args.weights = DataOrNull<float>(weights);
  args.out = out.mutable_data_ptr();
  ForRows(out.size(0), args.size * args.terms,
          [&](int64_t begin, int64_t end) { kernels::WeightedSumRows(args, begin, end); });
  return out;
}

struct DispatchFunction : torch::autograd::Function<DispatchFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& tokens,
                            const at::Tensor& places) {
    ctx->save_for_backward({places});
    return GatherRows(x.contiguous(), tokens);
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const at::Tensor places = ctx->get_saved_variables()[0];
    return {SumRows(grads[0].contiguous(), places, at::Tensor()), at::Tensor(), at::Tensor()};
  }
};

struct SumTokensFunction : torch::autograd::Function<SumTokensFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& results,
                            const at::Tensor& tokens, const at::Tensor& places) {
    ctx->save_for_backward({tokens});
    return SumRows(results, places, at::Tensor());
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const at::Tensor tokens = ctx->get_saved_variables()[0];
    return {GatherRows(grads[0].contiguous(), tokens), at::Tensor(), at::Tensor()};
  }
};

// `places`: none for one term a row.
struct CombineFunction : torch::autograd::Function<CombineFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& results,
                            const at::Tensor& weights, const std::optional<at::Tensor>& places) {
    ctx->save_for_backward({results, weights, places.value_or(at::Tensor())});
    return SumRows(results, places.value_or(at::Tensor()), weights);
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor& results = saved[0];
    const at::Tensor& weights = saved[1];
    const at::Tensor grad = grads[0].contiguous();
    if (device::KernelsTake({results})) {
      const auto [of_results, of_weights] =
          device::SumRowsBackward(grad, results, saved[2], weights);
      return {of_results, of_weights, at::Tensor()};
    }
    at::Tensor grad_results = at::empty_like(results);
    at::Tensor grad_weights = at::empty_like(weights);
    kernels::WeightedSumBackward args{ElementOf(results), results.size(1), weights.size(1)};
    args.rows = results.const_data_ptr();
    args.places = PlacesOf(saved[2]);
    args.weights = weights.const_data_ptr<float>();
    args.grad_out = grad.const_data_ptr();
    args.grad_rows = grad_results.mutable_data_ptr();
    args.grad_weights = grad_weights.mutable_data_ptr<float>();
    ForRows(grad.size(0), args.size * args.terms, [&](int64_t begin, int64_t end) {
      kernels::WeightedSumBackwardRows(args, begin, end);
    });
    return {grad_results, grad_weights, at::Tensor()};
  }
};

at::Tensor Combined(const at::Tensor& results, const at::Tensor& weights,
                    const std::optional<at::Tensor>& places) {
  const at::Tensor rows = results.contiguous();
  const at::Tensor factors = weights.contiguous();
  if (NeedsGraph({rows, factors})) return CombineFunction::apply(rows, factors, places);
  return SumRows(rows, places.value_or(at::Tensor()), factors);
}

}  // namespace

ExpertRows GroupByExpert(const at::Tensor& experts, int64_t num_experts) {
  if (device::GroupingTakes(experts)) return device::GroupByExpert(experts, num_experts);
  const at::Tensor chosen = experts.cpu();
  const int64_t count = chosen.numel();
  const int64_t top_k = chosen.size(1);
  ExpertRows rows{EmptyTensor({num_experts + 1}, at::kLong), EmptyTensor({count}, at::kLong),
                  EmptyTensor(chosen.sizes(), at::kLong)};
  const int64_t* const expert = chosen.const_data_ptr<int64_t>();
  int64_t* const first = rows.first.mutable_data_ptr<int64_t>();
  int64_t* const tokens = rows.tokens.mutable_data_ptr<int64_t>();
  int64_t* const places = rows.places.mutable_data_ptr<int64_t>();
  std::fill(first, first + num_experts + 1, 0);
  for (int64_t i = 0; i < count; ++i) ++first[expert[i] + 1];
  for (int64_t e = 0; e < num_experts; ++e) first[e + 1] += first[e];
  std::vector<int64_t> next(first, first + num_experts);
  for (int64_t i = 0; i < count; ++i) {
    places[i] = next[expert[i]]++;
    tokens[places[i]] = i / top_k;
  }
  rows.tokens = rows.tokens.to(experts.device());
  rows.places = rows.places.to(experts.device());
  return rows;
}

at::Tensor DispatchRows(const at::Tensor& x, const ExpertRows& rows) {
  if (!OursTake(x)) return at::index_select(x, 0, rows.tokens);
  if (NeedsGraph({x})) return DispatchFunction::apply(x, rows.tokens, rows.places);
  return GatherRows(x.contiguous(), rows.tokens);
}

OwnExpertRows OwnRows(const ExpertRows& all, Range experts) {
  OwnExpertRows own;
  const at::Tensor first_of_own = all.first.narrow(0, experts.begin, experts.size() + 1);
  if (device::GroupingTakes(all.first)) {
    own.rows = {first_of_own, all.tokens, at::Tensor(), /*has_others=*/true};
    return own;
  }
  const int64_t* const first = all.first.const_data_ptr<int64_t>();
  const int64_t begin = first[experts.begin];
  own.begin = begin;
  own.rows.first = first_of_own - begin;
  own.rows.tokens = all.tokens.narrow(0, begin, first[experts.end] - begin);
  return own;
}

at::Tensor DispatchOwnRows(const at::Tensor& x, const OwnExpertRows& own) {
  if (!KernelsTake({x})) return at::index_select(x, 0, own.rows.tokens);
  return GatherRows(x.contiguous(), own.rows.tokens.contiguous());
}

at::Tensor AmongAllRows(const at::Tensor& results, const OwnExpertRows& own,
                        const ExpertRows& all) {
  if (own.rows.has_others) return results;
  at::Tensor out = EmptyTensor({all.tokens.numel(), results.size(1)}, results.options());
  out.zero_();
  out.narrow(0, own.begin, results.size(0)).copy_(results);
  return out;
}

at::Tensor CombineRows(const at::Tensor& results, const at::Tensor& weights,
                       const ExpertRows& rows) {
  if (!OursTake(results)) return eager::CombineRows(results, weights, rows.places);
  return Combined(results, weights, rows.places);
}

at::Tensor SumRowsOfTokens(const at::Tensor& results, const ExpertRows& rows) {
  if (!OursTake(results)) {
    const at::ScalarType wide = results.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
    const auto options = results.options().requires_grad(false).dtype(wide);
    return eager::CombineRows(results, at::ones(rows.places.sizes(), options), rows.places);
  }
  const at::Tensor together = results.contiguous();
  if (NeedsGraph({together})) return SumTokensFunction::apply(together, rows.tokens, rows.places);
  return SumRows(together, rows.places, at::Tensor());
}

at::Tensor WeightsByRow(const at::Tensor& weights, const ExpertRows& rows) {
  const at::Tensor by_row =
      EmptyTensor({rows.places.numel(), 1}, weights.options().requires_grad(false));
  // Each row has one place, so that all are written.
  return at::scatter(by_row, 0, rows.places.view({-1, 1}), weights.reshape({-1, 1}));
}

at::Tensor ScaleRows(const at::Tensor& x, const at::Tensor& weights) {
  if (!OursTake(x)) return (x * weights).to(x.scalar_type());
  return Combined(x, weights, std::nullopt);
}

}  // namespace tandem::model
