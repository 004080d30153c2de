// ParameterProvider: where a layer's parameters come from. The same forward runs over
//   - the trainer's gathered units: leaves over storage that is emptied after use and refilled, the
//     same tensor, before that unit's backward;
//   - the rollout's arena: views at fixed addresses of the weights that are live.
#ifndef TANDEM_COMMON_MODEL_PARAMETER_PROVIDER_H_
#define TANDEM_COMMON_MODEL_PARAMETER_PROVIDER_H_

#include <ATen/core/Tensor.h>

namespace tandem::model {

namespace kernels {
class PackedMatrix;
}

class ParameterProvider {
 public:
  virtual ~ParameterProvider() = default;

  // Parameter `index` of the table in its logical shape and in compute dtype. The data may be read
  // until the provider's owner releases the parameter's unit; asking for a parameter whose unit is
  // not there is a programming mistake and aborts. Called by the thread that runs the forward.
  virtual const at::Tensor& Get(int index) const = 0;

  // The same matrix in the order in which the CPU's matrix product reads it (packed_arena.h),
  // where the provider keeps one; else null. It is used where no gradient is wanted, gives the same
  // bits, and may be all that there is: Get() then has a shape and no data.
  virtual const kernels::PackedMatrix* Packed(int index) const { return nullptr; }
};

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_PARAMETER_PROVIDER_H_
