// The rows that experts compute: a batch's tokens, once for each of their experts, grouped by
// expert.
//
//   const ExpertRows rows = GroupByExpert(experts, num_experts);
//   const at::Tensor by_expert = DispatchRows(x, rows);
//   const at::Tensor results = GroupedLinear(by_expert, rows, weights, biases, packed);
//   const at::Tensor out = CombineRows(results, token_weights, rows);
#ifndef TANDEM_COMMON_MODEL_EXPERT_ROWS_H_
#define TANDEM_COMMON_MODEL_EXPERT_ROWS_H_

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "common/model/tensor_parallel.h"

namespace tandem::model {

struct ExpertRows {
  // int64 [num_experts + 1]: expert e computes the rows [first[e], first[e + 1]). On a GPU where the
  // tokens are on one, else on the CPU.
  at::Tensor first;
  at::Tensor tokens;  // int64 [num_tokens * top_k]: the token of each row
  at::Tensor places;  // int64 [num_tokens, top_k]: the rows of each token, by ascending expert
  // Rows before `first` and behind its end belong to nobody here: their products are 0.
  bool has_others = false;
};

// Within an expert, rows are in the order of tokens. experts: int64 [num_tokens, top_k], ascending
// in each row (ChooseExperts()).
ExpertRows GroupByExpert(const at::Tensor& experts, int64_t num_experts);

// Returns the tokens' rows by expert, [num_tokens * top_k, size]. x: [num_tokens, size].
// Differentiable.
at::Tensor DispatchRows(const at::Tensor& x, const ExpertRows& rows);

// The rows of some consecutive experts, among those of all. On a GPU, which does not tell the host how many
// they are, all rows with others among them.
struct OwnExpertRows {
  ExpertRows rows;    // `first` and `tokens` alone; counted from `begin` on
  int64_t begin = 0;  // its place among all rows
};
OwnExpertRows OwnRows(const ExpertRows& all, Range experts);

// Returns the tokens' rows of these experts. x: [num_tokens, size]. Not differentiable.
at::Tensor DispatchOwnRows(const at::Tensor& x, const OwnExpertRows& own);

// Returns the results of these experts' rows at their places among all rows, which are 0 otherwise: the
// weighted sum is then this rank's part of a sum over ranks. Not differentiable.
at::Tensor AmongAllRows(const at::Tensor& results, const OwnExpertRows& own, const ExpertRows& all);

// Returns the weighted sum of each token's rows, [num_tokens, size]: in float32 in the order of
// experts, rounded once, so that a token's bits do not depend on the batch. results:
// [num_tokens * top_k, size] by expert; weights: [num_tokens, top_k]. Differentiable.
at::Tensor CombineRows(const at::Tensor& results, const at::Tensor& weights,
                       const ExpertRows& rows);

// The same with weights of 1.
at::Tensor SumRowsOfTokens(const at::Tensor& results, const ExpertRows& rows);

// Returns the weight of each row, [num_tokens * top_k, 1]. weights: [num_tokens, top_k].
// Differentiable.
at::Tensor WeightsByRow(const at::Tensor& weights, const ExpertRows& rows);

// Returns each row times its weight, [num_rows, 1]. Differentiable.
at::Tensor ScaleRows(const at::Tensor& x, const at::Tensor& weights);

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_EXPERT_ROWS_H_
