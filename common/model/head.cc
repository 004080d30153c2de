#include "common/model/head.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/gather.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "common/model/cpu_dispatch.h"
#include "common/model/device_row_ops.h"
#include "common/model/head_chunk.h"
#include "common/model/kernels/log_probs.h"
#include "common/model/linear.h"
#include "common/model/optional_tensor.h"
#include "common/model/step_memory.h"
#include "common/model/tensor_collectives.h"

namespace tandem::model {

namespace {

bool IsFloatOnCpu(const at::Tensor& logits) {
  return logits.is_cpu() && logits.scalar_type() == at::kFloat;
}

// float32 bias: what the kernels add to float32 products.
at::Tensor WideBias(const LmHead& head, at::ScalarType type) {
  return head.bias.defined() ? head.bias.detach().to(type).contiguous() : at::Tensor();
}

// Turns products into logits, in place.
void Transform(const LmHead& head, at::Tensor& logits) {
  if (!head.bias.defined() && head.scale == 1.0 && head.softcap <= 0.0) return;
  const at::Tensor bias = WideBias(head, logits.scalar_type());
  if (IsFloatOnCpu(logits)) {
    const int64_t vocab = logits.size(1);
    kernels::LogitTransform transform{nullptr, static_cast<float>(head.scale),
                                      static_cast<float>(head.softcap)};
    if (bias.defined()) transform.bias = bias.const_data_ptr<float>();
    float* const data = logits.mutable_data_ptr<float>();
    ForRows(logits.size(0), vocab, [&](int64_t begin, int64_t end) {
      kernels::TransformLogitRows(vocab, transform, data, begin, end);
    });
    return;
  }
  if (bias.defined()) logits.add_(bias);
  logits.mul_(head.scale);
  if (head.softcap > 0.0) logits.div_(head.softcap).tanh_().mul_(head.softcap);
}

}  // namespace

at::Tensor HeadLogits(const at::Tensor& hidden, const LmHead& head) {
  const at::Tensor& weight = head.weight;
  const at::ScalarType type = weight.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  at::Tensor logits;
  if (device::FewRowsProductTakes(hidden, weight, {})) {
    logits = device::FewRowsProduct(hidden, weight, {}, at::kFloat);
  } else if (hidden.is_cuda() && hidden.scalar_type() == at::kBFloat16 &&
             weight.scalar_type() == at::kBFloat16 && !device::ProductsTake({hidden, weight})) {
    logits = at::mm(hidden, weight.t(), type);  // cuBLAS's float32 sums, not rounded
  } else {
    logits = EmptyTensor({hidden.size(0), weight.size(0)}, hidden.options().dtype(type));
    MultiplyTransposed(hidden, weight, logits, head.packed);
  }
  Transform(head, logits);
  return logits;
}

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Per row, all [num_rows].
struct HeadOutput {
  at::Tensor logprobs;
  at::Tensor entropy;
  at::Tensor log_sum_exp;     // of the scaled logits
  at::Tensor sum_pi_squared;  // of the probabilities; undefined if not wanted
};

HeadOutput EmptyOutput(const at::Tensor& hidden) {
  const at::ScalarType type = hidden.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const at::TensorOptions options = hidden.options().dtype(type).requires_grad(false);
  const int64_t rows = hidden.size(0);
  return {at::empty({rows}, options), at::empty({rows}, options), at::empty({rows}, options)};
}

void ReadChunk(const at::Tensor& logits, const at::Tensor& targets, const at::Tensor& temperatures,
               HeadOutput& out) {
  if (IsFloatOnCpu(logits)) {
    kernels::LogProbsForward args{logits.size(1), logits.const_data_ptr<float>()};
    args.targets = targets.const_data_ptr<int64_t>();
    args.temperatures = temperatures.const_data_ptr<float>();
    args.log_probs = out.logprobs.mutable_data_ptr<float>();
    args.entropy = out.entropy.mutable_data_ptr<float>();
    args.log_sum_exp = out.log_sum_exp.mutable_data_ptr<float>();
    ForRows(logits.size(0), args.vocab,
            [&](int64_t begin, int64_t end) { kernels::LogProbsRows(args, begin, end); });
    return;
  }
  if (device::LogitKernelsTake(logits)) {
    device::RowLogProbs(logits, targets, temperatures, out.logprobs, out.entropy, out.log_sum_exp);
    return;
  }
  const at::Tensor scaled = logits / temperatures.unsqueeze(1);
  const at::Tensor log_sum_exp = at::logsumexp(scaled, 1);
  const at::Tensor log_p = scaled - log_sum_exp.unsqueeze(1);
  out.log_sum_exp.copy_(log_sum_exp);
  out.logprobs.copy_(log_p.gather(1, targets.clamp_min(0).unsqueeze(1)).squeeze(1));
  out.entropy.copy_(-(log_p.exp() * log_p).sum(1));
}

// Summed in float64, so that the order of the sum, which depends on threads, does not show.
void SumSquares(const at::Tensor& logits, const at::Tensor& temperatures, HeadOutput& out) {
  at::Tensor squares = logits / temperatures.unsqueeze(1);
  squares.sub_(out.log_sum_exp.unsqueeze(1)).mul_(2.0).exp_();
  out.sum_pi_squared.copy_(squares.sum(1, /*keepdim=*/false, at::kDouble));
}

// Returns the gradient of the head's products, in place of the chunk's logits if the kernels support
// it; on a GPU in the weight's type, which the products read.
at::Tensor ChunkGradient(at::Tensor logits, const LmHead& head, const at::Tensor& targets,
                         const at::Tensor& temperatures, const HeadOutput& forward,
                         const at::Tensor& grad_logprobs, const at::Tensor& grad_entropy) {
  if (IsFloatOnCpu(logits)) {
    kernels::LogProbsBackward args{logits.size(1), logits.mutable_data_ptr<float>()};
    args.transform.scale = static_cast<float>(head.scale);
    args.transform.softcap = static_cast<float>(head.softcap);
    args.targets = targets.const_data_ptr<int64_t>();
    args.temperatures = temperatures.const_data_ptr<float>();
    args.entropy = forward.entropy.const_data_ptr<float>();
    args.log_sum_exp = forward.log_sum_exp.const_data_ptr<float>();
    args.grad_log_probs = grad_logprobs.const_data_ptr<float>();
    args.grad_entropy = grad_entropy.const_data_ptr<float>();
    ForRows(logits.size(0), args.vocab,
            [&](int64_t begin, int64_t end) { kernels::LogProbsBackwardRows(args, begin, end); });
    return logits;
  }
  if (device::LogitKernelsTake(logits)) {
    at::Tensor grad = head.weight.scalar_type() == at::kBFloat16
                          ? at::empty(logits.sizes(), logits.options().dtype(at::kBFloat16))
                          : logits;
    device::RowLogProbsBackward(logits, head.scale, head.softcap, targets, temperatures,
                                forward.entropy, forward.log_sum_exp, grad_logprobs, grad_entropy,
                                grad);
    return grad;
  }
  const at::Tensor scale = temperatures.reciprocal().unsqueeze(1);
  const at::Tensor log_p = logits * scale - forward.log_sum_exp.unsqueeze(1);
  at::Tensor grad = log_p + forward.entropy.unsqueeze(1);
  grad = (grad * grad_entropy.unsqueeze(1) + grad_logprobs.unsqueeze(1)) * log_p.exp() * -1;
  const at::Tensor own = at::where(targets >= 0, grad_logprobs, 0);
  grad = grad.scatter_add(1, targets.clamp_min(0).unsqueeze(1), own.unsqueeze(1)) * scale;
  if (head.softcap > 0.0) grad = grad * (1.0 - (logits / head.softcap).square());
  return head.scale == 1.0 ? grad : grad * head.scale;
}

// Combines each rank's results over its part of the vocabulary into those of the whole. With L, H
// the log-sum-exp and entropy of a part, its mean of z = logits / temperature is L - H, and its
// share of the probability exp(L) over the sum of all. All terms are relative to the largest L.
void CombineOverRanks(const at::Tensor& targets, comm::ProcessGroup& group, HeadOutput& out) {
  if (targets.numel() == 0) return;
  at::Tensor most = out.log_sum_exp.clone();
  AllReduce(most, comm::ReduceOp::kMax, group, "head maxima");
  const at::Tensor above = out.log_sum_exp - most;
  const at::Tensor share = above.exp();
  const at::Tensor target = at::where(targets >= 0, out.logprobs + above, 0);
  std::vector<at::Tensor> terms = {share, share * (above - out.entropy), target};
  if (out.sum_pi_squared.defined()) terms.push_back(share.square() * out.sum_pi_squared);
  at::Tensor sums = at::stack(terms);
  AllReduce(sums, comm::ReduceOp::kSum, group, "head sums");
  const at::Tensor log_sum = sums[0].log();
  out.logprobs = sums[2] - log_sum;
  out.entropy = log_sum - sums[1] / sums[0];
  if (out.sum_pi_squared.defined()) out.sum_pi_squared = sums[3] / sums[0].square();
  out.log_sum_exp = most + log_sum;
}

// targets: rows of the weight, negative if this rank does not have them.
HeadOutput Forward(const at::Tensor& hidden, const LmHead& head, const at::Tensor& targets,
                   const at::Tensor& temperatures, comm::ProcessGroup* group,
                   bool sums_squares = false) {
  HeadOutput out = EmptyOutput(hidden);
  if (sums_squares) out.sum_pi_squared = at::empty_like(out.logprobs);
  const int64_t rows = hidden.size(0);
  const int64_t chunk = HeadChunkRows(head.weight.size(0), hidden.is_cuda());
  for (int64_t row = 0; row < rows; row += chunk) {
    const int64_t n = std::min(chunk, rows - row);
    HeadOutput part{out.logprobs.narrow(0, row, n), out.entropy.narrow(0, row, n),
                    out.log_sum_exp.narrow(0, row, n)};
    const at::Tensor logits = HeadLogits(hidden.narrow(0, row, n), head);
    ReadChunk(logits, targets.narrow(0, row, n), temperatures.narrow(0, row, n), part);
    if (!sums_squares) continue;
    part.sum_pi_squared = out.sum_pi_squared.narrow(0, row, n);
    SumSquares(logits, temperatures.narrow(0, row, n), part);
  }
  if (group != nullptr) CombineOverRanks(targets, *group, out);
  return out;
}

struct LogProbsFunction : torch::autograd::Function<LogProbsFunction> {
  static variable_list forward(AutogradContext* ctx, const at::Tensor& hidden,
                               const at::Tensor& weight, const std::optional<at::Tensor>& bias,
                               const at::Tensor& targets, const at::Tensor& temperatures,
                               double scale, double softcap, comm::ProcessGroup* group) {
    const LmHead head{weight, bias.value_or(at::Tensor()), scale, softcap};
    HeadOutput out = Forward(hidden, head, targets, temperatures, group);
    ctx->save_for_backward(
        {hidden, weight, targets, temperatures, out.entropy, out.log_sum_exp, head.bias});
    ctx->saved_data["scale"] = scale;
    ctx->saved_data["softcap"] = softcap;
    return {out.logprobs, out.entropy};
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor& hidden = saved[0];
    const at::Tensor& weight = saved[1];
    const LmHead head{weight, saved[6], ctx->saved_data["scale"].toDouble(),
                      ctx->saved_data["softcap"].toDouble()};
    const HeadOutput forward{{}, saved[4], saved[5]};
    const at::Tensor grad_logprobs = grads[0].contiguous();
    const at::Tensor grad_entropy = grads[1].contiguous();
    const bool want_hidden = ctx->needs_input_grad(0);
    const bool want_weight = ctx->needs_input_grad(1);
    const bool want_bias = head.bias.defined() && ctx->needs_input_grad(2);
    const int64_t rows = hidden.size(0);
    const int64_t chunk = HeadChunkRows(weight.size(0), hidden.is_cuda());

    at::Tensor grad_hidden = want_hidden ? at::empty_like(hidden) : at::Tensor();
    // Sums over the chunks in float32 and rounds once.
    const auto zeros = [type = saved[4].scalar_type()](const at::Tensor& like) {
      return at::zeros(like.sizes(), like.options().dtype(type));
    };
    at::Tensor grad_weight = want_weight ? zeros(weight) : at::Tensor();
    at::Tensor grad_bias = want_bias ? zeros(head.bias) : at::Tensor();
    for (int64_t row = 0; row < rows; row += chunk) {
      const int64_t n = std::min(chunk, rows - row);
      const at::Tensor x = hidden.narrow(0, row, n);
      const HeadOutput part{
          {}, forward.entropy.narrow(0, row, n), forward.log_sum_exp.narrow(0, row, n)};
      const at::Tensor grad_logits = ChunkGradient(
          HeadLogits(x, head), head, saved[2].narrow(0, row, n), saved[3].narrow(0, row, n), part,
          grad_logprobs.narrow(0, row, n), grad_entropy.narrow(0, row, n));
      if (want_hidden) {
        at::Tensor grad_x = grad_hidden.narrow(0, row, n);
        MultiplyPlain(grad_logits, weight, grad_x);
      }
      if (want_weight) MultiplyOverRows(grad_logits, x, grad_weight, /*accumulate=*/true);
      if (want_bias) grad_bias.add_(SumOfRows(grad_logits));
    }
    variable_list result(8);
    result[0] = grad_hidden;
    if (want_weight) result[1] = grad_weight.to(weight.scalar_type());
    if (want_bias) result[2] = grad_bias.to(head.bias.scalar_type());
    return result;
  }
};

// The targets as rows of the weight, negative if this rank does not have them.
at::Tensor RowsOf(const at::Tensor& targets, const at::Tensor& weight, const VocabularyPart& part) {
  if (part.group == nullptr) return targets;
  const at::Tensor row = targets - part.begin;
  return at::where((row >= 0) & (row < weight.size(0)), row, -1);
}

LmHead Contiguous(const LmHead& head) {
  LmHead out = head;
  if (head.packed == nullptr) out.weight = head.weight.contiguous();
  return out;
}

}  // namespace

LogProbs ChunkedLogProbs(const at::Tensor& hidden, const LmHead& head, const at::Tensor& targets,
                         const at::Tensor& temperatures, const VocabularyPart& part) {
  const at::Tensor x = hidden.contiguous();
  const LmHead own = Contiguous(head);
  const at::Tensor scales = temperatures.contiguous();
  const at::Tensor ids = RowsOf(targets.contiguous(), own.weight, part);
  if (NeedsGraph({x, own.weight, own.bias})) {
    variable_list out = LogProbsFunction::apply(x, own.weight, OptionalOf(own.bias), ids, scales,
                                                own.scale, own.softcap, part.group);
    return {std::move(out[0]), std::move(out[1]), {}};
  }
  HeadOutput out = Forward(x, own, ids, scales, part.group);
  return {std::move(out.logprobs), std::move(out.entropy), {}};
}

LogProbs ChunkedLogProbsAndSquares(const at::Tensor& hidden, const LmHead& head,
                                   const at::Tensor& targets, const at::Tensor& temperatures,
                                   const VocabularyPart& part) {
  const at::NoGradGuard no_grad;
  const LmHead own = Contiguous(head);
  HeadOutput out = Forward(hidden.contiguous(), own, RowsOf(targets.contiguous(), own.weight, part),
                           temperatures.contiguous(), part.group, /*sums_squares=*/true);
  return {std::move(out.logprobs), std::move(out.entropy), std::move(out.sum_pi_squared)};
}

}  // namespace tandem::model
