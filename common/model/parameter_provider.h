// ParameterProvider: supplies a layer's parameters. The same forward pass runs over
//   - the trainer's gathered units: leaves whose storage is freed after use and refilled, in the
//     same tensor, before that unit's backward pass;
//   - the rollout's arena: views at fixed addresses of the live weights.
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

  // Returns parameter `index` of the table in its logical shape and in compute dtype. The data is
  // valid until the provider's owner releases the parameter's unit; calling it for a unit that is
  // not gathered is a programming mistake and aborts. Only the forward pass's thread calls it.
  virtual const at::Tensor& Get(int index) const = 0;

  // The same; undefined for -1, a parameter that the layer does not have.
  at::Tensor GetOrUndefined(int index) const { return index < 0 ? at::Tensor() : Get(index); }

  // Returns the same matrix in the packed order of the CPU's matrix product (packed_arena.h), or
  // null if the provider has none. Used when no gradient is needed; gives the same bits. It may be
  // the only copy: Get() then has a shape and no data.
  virtual const kernels::PackedMatrix* Packed(int index) const { return nullptr; }
};

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_PARAMETER_PROVIDER_H_
