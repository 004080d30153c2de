#include "tools/tandem/plan/layer_memory.h"

#include <utility>

#include "common/model/layers/layer_forward.h"

namespace tandem::plan {

LayerMemory::LayerMemory(MemoryLedger& ledger, const model::ParameterTable& table,
                         const CountedBatch& batch, const model::LayerSpec& spec, int64_t layer,
                         sharding::Saves saves)
    : batch_(batch),
      spec_(spec),
      parameters_(table.layer(layer)),
      saves_(saves),
      x_is_constant_(table.first_trainable_stage() > layer),
      ops_(ledger, table, batch, spec.attention,
           saves == sharding::Saves::kNothing ? nullptr : &tape_,
           saves == sharding::Saves::kSelected ? &recomputation_ : nullptr, gradients_) {}

Size LayerMemory::Forward(const Size& x) {
  CountedTensor input(x, batch_.Bytes(batch_.hidden));
  if (x_is_constant_) input = input.Constant();
  CountedTensor out = ops_.Sum(model::LayerForward(ops_, spec_, parameters_, {input, {}}));
  recomputation_.Drop();
  if (saves_ != sharding::Saves::kNothing) {
    input_ = std::move(input);
    output_gradient_ = out.gradient();
  }
  return *out.storage();
}

std::vector<Size> LayerMemory::Backward(Size gradient) {
  recomputation_.Restore();
  output_gradient_->Give(std::move(gradient));
  tape_.Backward();
  gradients_.push_back(x_is_constant_ ? nullptr : input_.gradient()->Take());
  return std::move(gradients_);
}

}  // namespace tandem::plan
