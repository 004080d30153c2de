#include "common/model/soft_targets.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/gather.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "common/model/cpu_dispatch.h"
#include "common/model/head_chunk.h"
#include "common/model/head_of.h"
#include "common/model/linear.h"
#include "common/model/optional_tensor.h"
#include "common/model/tensor_collectives.h"
#include "common/model/tensor_parallel.h"

namespace tandem::model {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Per row, [num_rows].
struct SoftOutput {
  at::Tensor logprobs;
  at::Tensor log_sum_exp;  // of logits / temperature, over the whole vocabulary
};

// The ids as rows of the weight, 0 where this rank does not have them, and the weights, 0 there.
SoftTargets OwnTargets(const SoftTargets& targets, const at::Tensor& weight,
                       const VocabularyPart& part) {
  if (part.group == nullptr) return targets;
  const at::Tensor row = targets.ids - part.begin;
  const at::Tensor is_own = (row >= 0) & (row < weight.size(0));
  return {at::where(is_own, row, 0), at::where(is_own, targets.weights, 0)};
}

// `own`: see OwnTargets(); total: [num_rows], the sum of a row's weights on all ranks.
SoftOutput Forward(const at::Tensor& hidden, const LmHead& head, const SoftTargets& own,
                   const at::Tensor& total, const at::Tensor& temperatures,
                   comm::ProcessGroup* group) {
  const at::ScalarType type = hidden.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const at::TensorOptions options = hidden.options().dtype(type).requires_grad(false);
  const int64_t rows = hidden.size(0);
  // The weighted sum of the targets' scaled logits.
  at::Tensor sums = at::empty({rows}, options);
  at::Tensor log_sum_exp = at::empty({rows}, options);
  const int64_t chunk = HeadChunkRows(head.weight.size(0), hidden.is_cuda());
  for (int64_t row = 0; row < rows; row += chunk) {
    const int64_t n = std::min(chunk, rows - row);
    const at::Tensor scaled = HeadLogits(hidden.narrow(0, row, n), head)
                                  .div_(temperatures.narrow(0, row, n).unsqueeze(1));
    log_sum_exp.narrow(0, row, n).copy_(at::logsumexp(scaled, 1));
    const at::Tensor of_targets = scaled.gather(1, own.ids.narrow(0, row, n));
    sums.narrow(0, row, n).copy_((of_targets * own.weights.narrow(0, row, n)).sum(1));
  }
  if (group != nullptr && rows > 0) {
    at::Tensor most = log_sum_exp.clone();
    AllReduce(most, comm::ReduceOp::kMax, *group, "head maxima");
    at::Tensor share = (log_sum_exp - most).exp_();
    AllReduce(share, comm::ReduceOp::kSum, *group, "head sums");
    AllReduce(sums, comm::ReduceOp::kSum, *group, "soft targets");
    log_sum_exp = most + share.log();
  }
  return {sums - total * log_sum_exp, log_sum_exp};
}

struct SoftLogProbsFunction : torch::autograd::Function<SoftLogProbsFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& hidden,
                            const at::Tensor& weight, const std::optional<at::Tensor>& bias,
                            const at::Tensor& ids, const at::Tensor& weights,
                            const at::Tensor& total, const at::Tensor& temperatures, double scale,
                            double softcap, comm::ProcessGroup* group) {
    const LmHead head{weight, bias.value_or(at::Tensor()), scale, softcap};
    SoftOutput out = Forward(hidden, head, {ids, weights}, total, temperatures, group);
    ctx->save_for_backward(
        {hidden, weight, head.bias, ids, weights, total, temperatures, out.log_sum_exp});
    ctx->saved_data["scale"] = scale;
    ctx->saved_data["softcap"] = softcap;
    return out.logprobs;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor& hidden = saved[0];
    const at::Tensor& weight = saved[1];
    const LmHead head{weight, saved[2], ctx->saved_data["scale"].toDouble(),
                      ctx->saved_data["softcap"].toDouble()};
    const at::Tensor& ids = saved[3];
    const at::Tensor& temperatures = saved[6];
    const at::Tensor& log_sum_exp = saved[7];
    // d/dz of sum w_k z_k - W log sum exp z, with z = logits / temperature.
    const at::Tensor per_row = grads[0] / temperatures;
    const at::Tensor target_gradients = saved[4] * per_row.unsqueeze(1);
    const at::Tensor of_all = saved[5] * per_row;
    const bool want_hidden = ctx->needs_input_grad(0);
    const bool want_weight = ctx->needs_input_grad(1);
    const bool want_bias = head.bias.defined() && ctx->needs_input_grad(2);

    at::Tensor grad_hidden = want_hidden ? at::empty_like(hidden) : at::Tensor();
    // Sums over the chunks in float32 and rounds once.
    const auto zeros = [type = log_sum_exp.scalar_type()](const at::Tensor& like) {
      return at::zeros(like.sizes(), like.options().dtype(type));
    };
    at::Tensor grad_weight = want_weight ? zeros(weight) : at::Tensor();
    at::Tensor grad_bias = want_bias ? zeros(head.bias) : at::Tensor();
    const int64_t rows = hidden.size(0);
    const int64_t chunk = HeadChunkRows(weight.size(0), hidden.is_cuda());
    for (int64_t row = 0; row < rows; row += chunk) {
      const int64_t n = std::min(chunk, rows - row);
      const auto part = [row, n](const at::Tensor& all) { return all.narrow(0, row, n); };
      const at::Tensor x = part(hidden);
      at::Tensor grad = HeadLogits(x, head);  // the gradient takes their place
      const at::Tensor tanh_squared =
          head.softcap > 0.0 ? (grad / head.softcap).square_() : at::Tensor();
      grad.div_(part(temperatures).unsqueeze(1));
      grad.sub_(part(log_sum_exp).unsqueeze(1)).exp_().mul_(part(of_all).neg().unsqueeze(1));
      grad.scatter_add_(1, part(ids), part(target_gradients).to(grad.scalar_type()));
      if (tanh_squared.defined()) grad.mul_(1.0 - tanh_squared);
      if (head.scale != 1.0) grad.mul_(head.scale);
      if (want_hidden) {
        at::Tensor grad_x = part(grad_hidden);
        MultiplyPlain(grad, weight, grad_x);
      }
      if (want_weight) MultiplyOverRows(grad, x, grad_weight, /*accumulate=*/true);
      if (want_bias) grad_bias.add_(SumOfRows(grad));
    }
    variable_list result(10);
    result[0] = grad_hidden;
    if (want_weight) result[1] = grad_weight.to(weight.scalar_type());
    if (want_bias) result[2] = grad_bias.to(head.bias.scalar_type());
    return result;
  }
};

}  // namespace

at::Tensor ChunkedSoftLogProbs(const at::Tensor& hidden, const LmHead& head,
                               const SoftTargets& targets, const at::Tensor& temperatures,
                               const VocabularyPart& part) {
  LmHead own = head;
  own.weight = head.weight.contiguous();
  own.packed = nullptr;  // is for products without a graph
  const SoftTargets of_rank = OwnTargets(targets, own.weight, part);
  return SoftLogProbsFunction::apply(hidden.contiguous(), own.weight, OptionalOf(own.bias),
                                     of_rank.ids.contiguous(), of_rank.weights.contiguous(),
                                     targets.weights.sum(1), temperatures.contiguous(), own.scale,
                                     own.softcap, part.group);
}

at::Tensor HeadSoftLogProbs(const Transformer& model, const ParameterProvider& params,
                            const at::Tensor& hidden, const SoftTargets& targets,
                            const at::Tensor& temperatures) {
  comm::ProcessGroup* const group = model.tensor_group();
  const Range vocabulary = PartOf(model.spec().vocab_size, model.table().tensor_parallel());
  return ChunkedSoftLogProbs(CopyToRanks(hidden, group, "head, backward"), HeadOf(model, params),
                             targets, temperatures, {group, vocabulary.begin});
}

}  // namespace tandem::model
