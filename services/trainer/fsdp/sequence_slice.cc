#include "services/trainer/fsdp/sequence_slice.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "common/model/tensor_collectives.h"

namespace tandem::trainer {

SequenceSlice SliceOf(const PackedBatch& batch, int rank, int size) {
  SequenceSlice slice;
  slice.cu_seqlens = batch.cu_seqlens;
  slice.num_rows = batch.rows.numel();
  const int64_t tokens = batch.num_tokens();
  const int64_t each = (tokens + size - 1) / size;
  const int64_t first = each * rank;
  const int64_t end = std::min(first + each, tokens);
  if (each * size > tokens) slice.cu_seqlens.push_back(each * size);

  // Padding is token 0 at position 0.
  const auto part = [&](const at::Tensor& all) {
    const int64_t own = std::max<int64_t>(0, end - first);
    if (own == each) return all.narrow(0, first, each);
    return at::cat(
        {all.narrow(0, std::min(first, tokens), own), at::zeros({each - own}, at::kLong)});
  };
  slice.token_ids = part(batch.token_ids);
  // Images, whose tokens have three positions, are not split.
  slice.positions = batch.positions.dim() == 2 ? batch.positions : part(batch.positions);

  const int64_t* const rows = batch.rows.const_data_ptr<int64_t>();
  slice.first_row = std::lower_bound(rows, rows + slice.num_rows, first) - rows;
  const int64_t end_row = std::lower_bound(rows, rows + slice.num_rows, first + each) - rows;
  const int64_t count = end_row - slice.first_row;
  slice.rows = batch.rows.narrow(0, slice.first_row, count) - first;
  slice.targets = batch.targets.narrow(0, slice.first_row, count);
  slice.temperatures = batch.temperatures.narrow(0, slice.first_row, count);
  if (batch.soft_ids.defined()) {
    slice.soft_ids = batch.soft_ids.narrow(0, slice.first_row, count);
    slice.soft_weights = batch.soft_weights.narrow(0, slice.first_row, count);
  }
  return slice;
}

at::Tensor TokensOfSlice(const at::Tensor& of_tokens, double padding, int rank, int size) {
  const int64_t tokens = of_tokens.size(0);
  const int64_t each = (tokens + size - 1) / size;
  const int64_t first = std::min(each * rank, tokens);
  const int64_t own = std::min(each, tokens - first);
  const at::Tensor part = of_tokens.narrow(0, first, own);
  if (own == each) return part;
  std::vector<int64_t> shape = of_tokens.sizes().vec();
  shape[0] = each - own;
  return at::cat({part, at::full(shape, padding, of_tokens.options())});
}

std::vector<at::Tensor> GatherRows(const SequenceSlice& slice, const std::vector<at::Tensor>& own,
                                   comm::ProcessGroup& group) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> gathered;
  if (group.size() == 1) {
    for (const at::Tensor& tensor : own) gathered.push_back(tensor.detach());
    return gathered;
  }
  // Every row is one rank's; zeros added to it leave its bits.
  at::Tensor all = at::zeros({static_cast<int64_t>(own.size()), slice.num_rows},
                             own[0].options().requires_grad(false));
  for (size_t i = 0; i < own.size(); ++i) {
    const at::Tensor row = all[static_cast<int64_t>(i)];
    row.narrow(0, slice.first_row, own[i].numel()).copy_(own[i]);
  }
  model::AllReduce(all, comm::ReduceOp::kSum, group, "results of all slices");
  for (size_t i = 0; i < own.size(); ++i) gathered.push_back(all[static_cast<int64_t>(i)]);
  return gathered;
}

}  // namespace tandem::trainer
