// The operations of experts on a CUDA device: routing (router.h), the rows of experts (expert_rows.h)
// and their products (grouped_linear.h), which have their meaning there. Nothing waits for the device,
// so that decode steps with experts can be captured in a CUDA graph. Work is queued on the thread's
// current stream; device errors are thrown, as in ATen. Not differentiable. Builds without CUDA take
// nothing.
#ifndef TANDEM_COMMON_MODEL_DEVICE_EXPERTS_H_
#define TANDEM_COMMON_MODEL_DEVICE_EXPERTS_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "common/model/expert_rows.h"
#include "common/model/router.h"

namespace tandem::model::device {

// float32 logits on a CUDA device, as many experts as the kernels have room for.
bool RoutingTakes(const at::Tensor& logits, const RoutingSpec& spec);
at::Tensor ChooseExperts(const at::Tensor& logits, const Router& router);
at::Tensor ExpertWeights(const at::Tensor& logits, const at::Tensor& experts, const Router& router);

// int64 on a CUDA device. All of the result is there too.
bool GroupingTakes(const at::Tensor& experts);
ExpertRows GroupByExpert(const at::Tensor& experts, int64_t num_experts);

// Returns the sums of weights[i, j] rows[places[i, j]], of float32 or bfloat16 rows. Undefined places: row
// i alone; undefined weights: all 1. All contiguous.
at::Tensor SumRows(const at::Tensor& rows, const at::Tensor& places, const at::Tensor& weights);
// Returns the gradients of rows and weights.
std::pair<at::Tensor, at::Tensor> SumRowsBackward(const at::Tensor& grad, const at::Tensor& rows,
                                                  const at::Tensor& places,
                                                  const at::Tensor& weights);

// Products of groups of rows, of float32 or bfloat16 (KernelsTake()). first: int64 [groups + 1], on the
// device too. x: contiguous [num_rows, in]. has_others: rows may lie before and behind all groups, where
// the result is 0. With exact numerics a row's bits are those of
// Linear().
at::Tensor GroupedProduct(const at::Tensor& x, const at::Tensor& first,
                          const std::vector<at::Tensor>& weights,
                          const std::vector<at::Tensor>& biases, bool has_others);

// Gradients of the products, where ATen computes them for all groups at once: bfloat16, on GPUs with
// such products, sizes and places in memory that are multiples of 16 bytes. Deterministic.
// Returns the weights as one tensor, [groups, out, in]; undefined if ATen does not compute them.
at::Tensor WeightsForGroupedGradients(const at::Tensor& x, const at::Tensor& grad,
                                      const std::vector<at::Tensor>& weights);
// Returns grad weights[g] for the rows of group g, [num_rows, in].
at::Tensor GroupedInputGradient(const at::Tensor& grad, const at::Tensor& first,
                                const at::Tensor& weights);
// Returns grad^T x of each group, [groups, out, in].
at::Tensor GroupedWeightGradient(const at::Tensor& grad, const at::Tensor& x,
                                 const at::Tensor& first);

}  // namespace tandem::model::device

#endif  // TANDEM_COMMON_MODEL_DEVICE_EXPERTS_H_
