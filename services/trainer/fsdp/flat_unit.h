// FlatUnit: a unit's parameters as tensors that persist while the memory under them comes and goes.
// All are views of one storage whose data pointer is swapped: tensors that autograd saved in the
// forward pass (the parameters and their transposed views) see the unit's memory of the backward
// pass, and nothing is rebuilt. The swap leaves version counters alone, which an in-place copy
// would not.
#ifndef TANDEM_SERVICES_TRAINER_FSDP_FLAT_UNIT_H_
#define TANDEM_SERVICES_TRAINER_FSDP_FLAT_UNIT_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "common/model/parameter_table.h"

namespace tandem::trainer {

class FlatUnit {
 public:
  // Starts without memory. `unit` is an index of the table; `padded_numel` elements back it.
  FlatUnit(const model::ParameterTable& table, int unit, int64_t padded_numel, at::ScalarType dtype,
           at::Device device, bool trainable);

  // Puts the parameters onto `memory` [padded_numel], which the caller keeps alive until Detach().
  void Attach(const at::Tensor& memory);
  void Detach();
  bool attached() const { return attached_; }

  // The unit's parameters, in table order: leaves of autograd, in their logical shapes. Reading one
  // while detached crashes.
  const std::vector<at::Tensor>& leaves() const { return leaves_; }

 private:
  at::Tensor flat_;
  std::vector<at::Tensor> leaves_;
  bool attached_ = false;
};

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_FSDP_FLAT_UNIT_H_
