// Implements device_experts.h for builds with CUDA.
#include <ATen/ops/_grouped_mm.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/bucketize.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>

#include <algorithm>

#include "common/model/cuda_row_product.h"
#include "common/model/cuda_tensor.h"
#include "common/model/device_experts.h"
#include "common/model/device_processor.h"
#include "common/model/device_row_ops.h"
#include "common/model/kernels/cuda/router_kernels.h"
#include "common/model/kernels/cuda/row_product.h"
#include "common/model/kernels/cuda/weighted_sum.h"
#include "common/model/numerics.h"
#include "common/model/optional_tensor.h"

namespace tandem::model::device {
namespace {

constexpr int64_t kPackBytes = 16;  // to which ATen wants rows of grouped products aligned
constexpr int64_t kMostAtenGroups = 1000;

cuda::RoutedLogits RoutedOf(const at::Tensor& logits, const RoutingSpec& spec,
                            const at::Tensor& correction_bias) {
  cuda::RoutedLogits routed;
  routed.score = spec.score;
  routed.rows = logits.size(0);
  routed.num_experts = static_cast<int>(logits.size(1));
  routed.top_k = static_cast<int>(spec.top_k);
  routed.logits = logits.const_data_ptr<float>();
  routed.correction_bias = DataOrNull<float>(correction_bias);
  return routed;
}

// Returns the matrices as one tensor: a view if they lie equally far apart in one storage, as those of a
// layer's experts do in an arena and in a gathered unit, else a copy.
at::Tensor Stacked(const std::vector<at::Tensor>& parts) {
  const at::Tensor& first = parts.front();
  const auto place = [](const at::Tensor& part) { return part.storage_offset(); };
  const int64_t stride = parts.size() > 1 ? place(parts[1]) - place(first) : first.numel();
  for (size_t i = 0; i < parts.size(); ++i) {
    const at::Tensor& part = parts[i];
    if (!part.is_contiguous() || !part.storage().is_alias_of(first.storage()) ||
        part.scalar_type() != first.scalar_type() || stride < first.numel() ||
        place(part) != place(first) + static_cast<int64_t>(i) * stride) {
      return at::stack(parts);
    }
  }
  std::vector<int64_t> sizes = first.sizes().vec();
  std::vector<int64_t> strides = first.strides().vec();
  sizes.insert(sizes.begin(), static_cast<int64_t>(parts.size()));
  strides.insert(strides.begin(), stride);
  return first.as_strided(sizes, strides, place(first));
}

bool AreAligned(const at::Tensor& x, int64_t size) {
  return size * x.element_size() % kPackBytes == 0 &&
         reinterpret_cast<uintptr_t>(x.const_data_ptr()) % kPackBytes == 0;
}

// Whether ATen multiplies such rows by groups: what it has no kernel for it computes group by group, and
// waits.
bool AtenTakes(const at::Tensor& x) {
  return x.scalar_type() == at::kBFloat16 && HasGroupedProducts(x.device()) && x.size(0) > 0 &&
         AreAligned(x, x.size(1));
}
bool AtenTakes(const at::Tensor& x, const at::Tensor& stack) {
  return AtenTakes(x) && stack.scalar_type() == at::kBFloat16 && stack.size(0) <= kMostAtenGroups &&
         AreAligned(stack, stack.stride(0)) && AreAligned(stack, stack.size(2)) &&
         AreAligned(stack, stack.size(1));
}

// The ends of groups, as ATen wants them.
at::Tensor EndsOf(const at::Tensor& first) {
  return first.narrow(0, 1, first.numel() - 1).to(at::kInt);
}

// The bias of each row's group.
at::Tensor BiasesByRow(const at::Tensor& stack, const at::Tensor& first, int64_t num_rows) {
  const at::Tensor row = at::arange(num_rows, first.options());
  const at::Tensor ends = first.narrow(0, 1, first.numel() - 1);
  return stack.index_select(0, at::bucketize(row, ends, /*out_int32=*/false, /*right=*/true));
}

}  // namespace

bool RoutingTakes(const at::Tensor& logits, const RoutingSpec& spec) {
  return logits.is_cuda() && logits.scalar_type() == at::kFloat &&
         logits.size(1) <= cuda::kMostExperts && spec.top_k <= cuda::kMostChosen &&
         spec.num_groups <= cuda::kMostGroups;
}

at::Tensor ChooseExperts(const at::Tensor& logits, const Router& router) {
  const c10::cuda::CUDAGuard guard(logits.device());
  const at::Tensor in = logits.contiguous();
  const at::Tensor bias = ContiguousOrUndefined(router.correction_bias);
  at::Tensor experts = at::empty({in.size(0), router.spec.top_k},
                                 in.options().dtype(at::kLong).requires_grad(false));
  cuda::ChooseExperts args;
  args.routed = RoutedOf(in, router.spec, bias);
  args.num_groups = static_cast<int>(router.spec.num_groups);
  args.top_groups = static_cast<int>(router.spec.top_groups);
  args.group_score = router.spec.group_score;
  args.experts = experts.mutable_data_ptr<int64_t>();
  C10_CUDA_CHECK(cuda::Launch(args, CurrentStream(in.device())));
  return experts;
}

at::Tensor ExpertWeights(const at::Tensor& logits, const at::Tensor& experts,
                         const Router& router) {
  const c10::cuda::CUDAGuard guard(logits.device());
  const at::Tensor in = logits.contiguous();
  const at::Tensor chosen = experts.contiguous();
  const at::Tensor bias = ContiguousOrUndefined(router.correction_bias);
  at::Tensor weights = at::empty(chosen.sizes(), in.options().requires_grad(false));
  cuda::WeighExperts args;
  args.routed = RoutedOf(in, router.spec, bias);
  args.normalize = router.spec.normalize;
  args.scale = static_cast<float>(router.spec.scale);
  args.jitter = static_cast<float>(router.spec.jitter);
  args.experts = chosen.const_data_ptr<int64_t>();
  args.weights = weights.mutable_data_ptr<float>();
  C10_CUDA_CHECK(cuda::Launch(args, CurrentStream(in.device())));
  return weights;
}

bool GroupingTakes(const at::Tensor& experts) {
  return experts.is_cuda() && experts.scalar_type() == at::kLong;
}

ExpertRows GroupByExpert(const at::Tensor& experts, int64_t num_experts) {
  const c10::cuda::CUDAGuard guard(experts.device());
  const at::Tensor chosen = experts.contiguous();
  ExpertRows rows{at::empty({num_experts + 1}, chosen.options()),
                  at::empty({chosen.numel()}, chosen.options()), at::empty_like(chosen)};
  cuda::GroupRows args;
  args.tokens = chosen.size(0);
  args.top_k = static_cast<int>(chosen.size(1));
  args.num_experts = static_cast<int>(num_experts);
  args.experts = chosen.const_data_ptr<int64_t>();
  args.first = rows.first.mutable_data_ptr<int64_t>();
  args.token_of_row = rows.tokens.mutable_data_ptr<int64_t>();
  args.places = rows.places.mutable_data_ptr<int64_t>();
  C10_CUDA_CHECK(cuda::Launch(args, CurrentStream(chosen.device())));
  return rows;
}

at::Tensor SumRows(const at::Tensor& rows, const at::Tensor& places, const at::Tensor& weights) {
  const c10::cuda::CUDAGuard guard(rows.device());
  const at::Tensor& shape = places.defined() ? places : weights;
  at::Tensor out = at::empty({shape.size(0), rows.size(1)}, rows.options().requires_grad(false));
  cuda::WeightedSum args;
  args.type = CudaElementOf(rows);
  args.sums = shape.size(0);
  args.size = rows.size(1);
  args.terms = shape.size(1);
  args.rows = rows.const_data_ptr();
  args.places = DataOrNull<int64_t>(places);
  args.weights = DataOrNull<float>(weights);
  args.out = out.mutable_data_ptr();
  C10_CUDA_CHECK(cuda::Launch(args, CurrentStream(rows.device())));
  return out;
}

std::pair<at::Tensor, at::Tensor> SumRowsBackward(const at::Tensor& grad, const at::Tensor& rows,
                                                  const at::Tensor& places,
                                                  const at::Tensor& weights) {
  const c10::cuda::CUDAGuard guard(rows.device());
  std::pair<at::Tensor, at::Tensor> grads{at::empty_like(rows), at::empty_like(weights)};
  cuda::WeightedSumBackward args;
  args.type = CudaElementOf(rows);
  args.sums = weights.size(0);
  args.size = rows.size(1);
  args.terms = weights.size(1);
  args.rows = rows.const_data_ptr();
  args.places = DataOrNull<int64_t>(places);
  args.weights = weights.const_data_ptr<float>();
  args.grad_out = grad.const_data_ptr();
  args.grad_rows = grads.first.mutable_data_ptr();
  args.grad_weights = grads.second.mutable_data_ptr<float>();
  C10_CUDA_CHECK(cuda::Launch(args, CurrentStream(rows.device())));
  return grads;
}

at::Tensor GroupedProduct(const at::Tensor& x, const at::Tensor& first,
                          const std::vector<at::Tensor>& weights,
                          const std::vector<at::Tensor>& biases, bool has_others) {
  const c10::cuda::CUDAGuard guard(x.device());
  const at::Tensor stack = Stacked(weights);
  const at::Tensor bias = biases.empty() ? at::Tensor() : Stacked(biases);
  if (!has_others && CurrentNumerics() != Numerics::kExact && AtenTakes(x, stack)) {
    at::Tensor out = at::_grouped_mm(x, stack.transpose(1, 2), EndsOf(first));
    if (bias.defined()) out.add_(BiasesByRow(bias, first, x.size(0)));
    return out;
  }
  const auto options = x.options().requires_grad(false);
  const std::vector<int64_t> sizes = {x.size(0), stack.size(1)};
  at::Tensor out = has_others ? at::zeros(sizes, options) : at::empty(sizes, options);
  cuda::RowProduct args;
  args.out_size = stack.size(1);
  args.weight = stack.const_data_ptr();
  args.first = first.const_data_ptr<int64_t>();
  args.groups = stack.size(0);
  args.weight_stride = stack.stride(0);
  args.bias_stride = bias.defined() ? bias.stride(0) : 0;
  LaunchRowProduct(x, bias, out, args);
  return out;
}

at::Tensor WeightsForGroupedGradients(const at::Tensor& x, const at::Tensor& grad,
                                      const std::vector<at::Tensor>& weights) {
  // What may copy all weights comes last.
  if (!KernelsTake({x, grad}) || !AtenTakes(x) || !AreAligned(grad, grad.size(1))) return {};
  const at::Tensor stack = Stacked(weights);
  return AtenTakes(x, stack) ? stack : at::Tensor();
}

at::Tensor GroupedInputGradient(const at::Tensor& grad, const at::Tensor& first,
                                const at::Tensor& weights) {
  const c10::cuda::CUDAGuard guard(grad.device());
  return at::_grouped_mm(grad, weights, EndsOf(first));
}

at::Tensor GroupedWeightGradient(const at::Tensor& grad, const at::Tensor& x,
                                 const at::Tensor& first) {
  const c10::cuda::CUDAGuard guard(grad.device());
  return at::_grouped_mm(grad.t(), x, EndsOf(first));
}

}  // namespace tandem::model::device
