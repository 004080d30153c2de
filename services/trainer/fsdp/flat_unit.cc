#include "services/trainer/fsdp/flat_unit.h"

#include <ATen/ops/empty.h>
#include <c10/core/Storage.h>
#include <c10/core/StorageImpl.h>

#include <utility>

namespace tandem::trainer {

FlatUnit::FlatUnit(const model::ParameterTable& table, int unit, int64_t padded_numel,
                   at::ScalarType dtype, at::Device device, bool trainable) {
  const at::TensorOptions options = at::TensorOptions(dtype).device(device);
  const size_t size_bytes = static_cast<size_t>(padded_numel) * c10::elementSize(dtype);
  c10::Storage storage(c10::Storage::use_byte_size_t(), size_bytes, at::DataPtr(nullptr, device),
                       /*allocator=*/nullptr, /*resizable=*/false);
  flat_ = at::empty({0}, options);
  flat_.set_(std::move(storage), 0, {padded_numel}, {1});
  for (const int index : table.units()[unit].parameters) {
    const model::Parameter& parameter = table.parameter(index);
    at::Tensor leaf =
        flat_.narrow(0, parameter.offset, parameter.numel).view(parameter.shape).detach();
    leaf.requires_grad_(trainable && parameter.trainable);
    leaves_.push_back(std::move(leaf));
  }
}

void FlatUnit::Attach(const at::Tensor& memory) {
  TORCH_INTERNAL_ASSERT(memory.is_contiguous() && memory.numel() == flat_.numel() &&
                        memory.scalar_type() == flat_.scalar_type());
  flat_.storage().unsafeGetStorageImpl()->set_data_ptr_noswap(
      at::DataPtr(memory.data_ptr(), memory.device()));
  attached_ = true;
}

void FlatUnit::Detach() {
  flat_.storage().unsafeGetStorageImpl()->set_data_ptr_noswap(at::DataPtr(nullptr, flat_.device()));
  attached_ = false;
}

}  // namespace tandem::trainer
