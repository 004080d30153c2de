#include "services/trainer/fsdp/image_boundary.h"

#include <ATen/ops/cat.h>

#include <vector>

#include "common/model/vision_tower.h"

namespace tandem::trainer {

at::Tensor WithLaterRows(const at::Tensor& x, const at::Tensor& rows) {
  const int64_t hidden = x.size(1);
  if (rows.size(1) == hidden) return x;
  std::vector<at::Tensor> parts = {x};
  for (int64_t begin = hidden; begin < rows.size(1); begin += hidden) {
    parts.push_back(rows.narrow(1, begin, hidden).to(x.scalar_type()));
  }
  return at::cat(parts);
}

ImageBoundary SplitBoundary(const at::Tensor& boundary, int64_t num_tokens, int64_t num_rows) {
  const int64_t num_later = boundary.size(0) - num_tokens - num_rows;
  if (num_later < 0) return {boundary, {}, {}};
  // At once: the gradients are then put together in one tensor.
  std::vector<int64_t> sizes = {num_tokens, num_rows};
  if (num_later > 0) sizes.push_back(num_later);
  const std::vector<at::Tensor> parts = boundary.split_with_sizes(sizes);
  return {parts[0], parts[1], num_later > 0 ? parts[2] : at::Tensor()};
}

at::Tensor JoinBoundary(const at::Tensor& x, const at::Tensor& tokens, const ImageBoundary& in) {
  if (!in.rows.defined()) return x;
  const at::Tensor sum = model::AddRows(x, tokens, in.rows);
  return in.later.defined() ? at::cat({sum, in.later}) : sum;
}

}  // namespace tandem::trainer
