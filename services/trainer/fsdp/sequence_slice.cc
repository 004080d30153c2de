#include "services/trainer/fsdp/sequence_slice.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "common/model/image_places.h"
#include "common/model/tensor_collectives.h"

namespace tandem::trainer {

namespace {

// Leaves out the images that the slice does not show, so that no rank encodes them for nothing.
void AddImages(const PackedBatch& batch, int rank, int size, SequenceSlice& slice) {
  slice.image_rows = TokensOfSlice(batch.image_rows, /*padding=*/-1, rank, size).clone();
  int64_t* const rows = slice.image_rows.mutable_data_ptr<int64_t>();
  int64_t* const rows_end = rows + slice.image_rows.numel();
  int64_t first = 0;    // of the image, among the rows of the batch's
  int64_t removed = 0;  // rows before it of images that are left out
  for (const int64_t image : batch.image_indices) {
    const int64_t count = model::NumImageRows(batch.images->spec(), batch.images->GridOf(image));
    const auto is_of_image = [&](int64_t row) { return row >= first && row < first + count; };
    // Rows that have been moved lie before `first`.
    if (std::any_of(rows, rows_end, is_of_image)) {
      for (int64_t* row = rows; row != rows_end; ++row) {
        if (is_of_image(*row)) *row -= removed;
      }
      slice.image_indices.push_back(image);
    } else {
      removed += count;
    }
    first += count;
  }
}

}  // namespace

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
  // With images, by time, height and width.
  slice.positions = batch.positions.dim() == 2
                        ? at::stack({part(batch.positions[0]), part(batch.positions[1]),
                                     part(batch.positions[2])})
                        : part(batch.positions);
  if (batch.image_rows.defined()) AddImages(batch, rank, size, slice);

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
