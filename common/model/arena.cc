#include "common/model/arena.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "common/comm/shareable_memory.h"
#include "common/model/kernels/large_pages.h"
#include "common/model/release_pages.h"

namespace tandem::model {
namespace {

constexpr int64_t kAlignment = 64;  // bytes: a cache line, and the widest vector

int64_t Aligned(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

Arena::Arena(const ParameterTable& table, at::ScalarType dtype, at::Device device,
             const LeavesOut& leaves_out)
    : table_(table), dtype_(dtype) {
  const at::NoGradGuard no_grad;
  const auto dtype_of = [&](size_t index) {
    return table.parameters()[index].in_float32 && dtype != at::kDouble ? at::kFloat : dtype;
  };
  const auto bytes_of = [&](size_t index) {
    return table.parameters()[index].numel *
           static_cast<int64_t>(c10::elementSize(dtype_of(index)));
  };
  const auto held_bytes = [&](size_t index) {
    const bool is_held = leaves_out == nullptr || !leaves_out(static_cast<int>(index));
    return is_held ? bytes_of(index) : 0;
  };
  int64_t size = 0;
  for (size_t i = 0; i < table.parameters().size(); ++i) size += Aligned(held_bytes(i));
  storage_ = device.is_cpu() ? comm::ShareableZeros(size, at::kByte)
                             : at::empty({size}, at::TensorOptions(at::kByte).device(device));
  if (storage_.is_cpu()) kernels::WantLargePages(storage_.data_ptr(), storage_.nbytes());
  int64_t offset = 0;
  for (size_t i = 0; i < table.parameters().size(); ++i) {
    const Parameter& parameter = table.parameters()[i];
    const int64_t bytes = held_bytes(i);
    if (bytes < bytes_of(i)) {
      parameters_.push_back(
          at::from_blob(nullptr, parameter.shape, at::TensorOptions(dtype_of(i)).device(device)));
      continue;
    }
    parameters_.push_back(
        storage_.narrow(0, offset, bytes).view(dtype_of(i)).view(parameter.shape));
    offset += Aligned(bytes);
  }
}

at::Tensor Arena::SegmentTensor(size_t i) const {
  const ParameterTable::SegmentRef ref = table_.segments()[i];
  const Segment& segment = table_.segment(ref);
  return parameters_[ref.parameter].detach().narrow(0, segment.row, segment.shape[0]);
}

absl::Span<std::byte> Arena::SegmentBytes(size_t i) const {
  const ParameterTable::SegmentRef ref = table_.segments()[i];
  const Parameter& parameter = table_.parameter(ref.parameter);
  const Segment& segment = table_.segment(ref);
  const auto element = static_cast<int64_t>(parameters_[ref.parameter].element_size());
  if (parameters_[ref.parameter].storage().data() == nullptr) return {};
  std::byte* const start = static_cast<std::byte*>(parameters_[ref.parameter].data_ptr());
  return {start + (segment.offset - parameter.offset) * element,
          static_cast<size_t>(segment.numel * element)};
}

absl::Span<std::byte> Arena::bytes() const {
  return {static_cast<std::byte*>(storage_.data_ptr()), static_cast<size_t>(storage_.numel())};
}

void Arena::CopyFrom(const Arena& other) {
  const at::NoGradGuard no_grad;
  storage_.copy_(other.storage_);
  // Only a copy to or from the host waits by itself.
  if (storage_.is_cpu() || other.storage_.is_cpu()) return;
  const c10::impl::VirtualGuardImpl guard(storage_.device().type());
  guard.synchronizeStream(guard.getStream(storage_.device()));
}

void Arena::ReleaseMemory() { ReleasePages(storage_.data_ptr(), storage_.nbytes()); }

void Arena::RequireGrad() {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (table_.parameters()[i].trainable) {
      parameters_[i] = parameters_[i].detach().requires_grad_(true);
    }
  }
}

}  // namespace tandem::model
