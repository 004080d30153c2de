#include "services/trainer/algorithm/sequence_rows.h"

#include <ATen/ATen.h>

#include <tuple>

#include "common/device/upload.h"

namespace tandem::trainer {

SequenceRows::SequenceRows(const at::Tensor& sequence_index, at::Device device) {
  const auto [sequences, row, counts] =
      at::unique_consecutive(sequence_index, /*return_inverse=*/true, /*return_counts=*/true);
  row_ = device::Upload(row, device);
  counts_ = device::Upload(counts.to(at::kFloat), device);
}

at::Tensor SequenceRows::Sum(const at::Tensor& values) const {
  return at::zeros({counts_.numel()}, values.options()).index_add(0, row_, values);
}

at::Tensor SequenceRows::Mean(const at::Tensor& values) const {
  return Sum(values) / counts_.to(values.scalar_type());
}

at::Tensor SequenceRows::Spread(const at::Tensor& of_sequences) const {
  return of_sequences.index_select(0, row_);
}

}  // namespace tandem::trainer
