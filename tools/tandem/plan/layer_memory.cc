#include "tools/tandem/plan/layer_memory.h"

#include <algorithm>
#include <utility>

#include "common/model/layers/layer_forward.h"

namespace tandem::plan {

LayerMemory::LayerMemory(MemoryLedger& ledger, const model::ParameterTable& table,
                         const CountedBatch& batch, const model::LayerSpec& spec, int64_t layer,
                         sharding::Saves saves)
    : batch_(batch),
      spec_(spec),
      parameters_(table.layer(layer)),
      layer_(layer),
      carried_(model::CarriedTensorsOf(table.spec())),
      ledger_(ledger),
      saves_(saves),
      x_is_constant_(table.first_trainable_stage() > layer),
      ops_(ledger, table, batch, spec.attention,
           saves == sharding::Saves::kNothing ? nullptr : &tape_,
           saves == sharding::Saves::kSelected ? &recomputation_ : nullptr, gradients_),
      first_trainable_stage_(table.first_trainable_stage()) {}

Size LayerMemory::Forward(const Size& x) {
  std::vector<Size> made;
  return Forward(x, {}, made);
}

Size LayerMemory::Forward(const Size& x, const std::vector<Size>& reads, std::vector<Size>& made) {
  CountedTensor input(x, batch_.Bytes(batch_.hidden));
  if (x_is_constant_) input = input.Constant();
  CountedCarried carried;
  size_t next = 0;
  const int stage = static_cast<int>(layer_) + 1;
  for (const model::CarriedTensor& tensor : carried_) {
    // ShardedMemory adds what images add behind the layer.
    if (tensor.kind == model::CarriedTensor::Kind::kImageRows) continue;
    carried.makes_kv |= tensor.maker == stage;
    if (std::find(tensor.readers.begin(), tensor.readers.end(), stage) == tensor.readers.end()) {
      continue;
    }
    const bool is_kv = tensor.kind == model::CarriedTensor::Kind::kKeysAndValues;
    CountedTensor read(reads.at(next++),
                       is_kv ? ops_.KvBytes() : batch_.Bytes(spec_.input_gate->size));
    if (first_trainable_stage_ > tensor.maker) read = read.Constant();
    (is_kv ? carried.kv : carried.input) = std::move(read);
  }
  ops_.Carry(carried);
  CountedTensor out = ops_.Sum(model::LayerForward(ops_, spec_, parameters_, {input, {}}));
  recomputation_.Drop();
  if (carried.makes_kv) {
    const CountedTensor kv = ops_.TakeMadeKv();
    made.push_back(*kv.storage());
    made_gradient_ = kv.gradient();
  }
  if (saves_ != sharding::Saves::kNothing) {
    input_ = std::move(input);
    kv_ = std::move(carried.kv);
    layer_input_ = std::move(carried.input);
    output_gradient_ = out.gradient();
  }
  return *out.storage();
}

std::vector<Size> LayerMemory::Backward(Size gradient, const std::vector<Size>& of_made) {
  recomputation_.Restore();
  output_gradient_->Give(std::move(gradient));
  if (made_gradient_ != nullptr && !of_made.empty()) made_gradient_->Give(of_made.front());
  tape_.Backward();
  if (kv_.defined()) {
    read_gradients_.push_back(kv_.gradient() == nullptr ? nullptr : kv_.gradient()->Take());
  }
  if (layer_input_.defined()) {
    // Copied: it is part of a larger tensor.
    const bool has_gradient = layer_input_.gradient() != nullptr;
    read_gradients_.push_back(
        has_gradient ? ledger_.Take(MemoryKind::kActivations, layer_input_.bytes()) : nullptr);
    if (has_gradient) layer_input_.gradient()->Take();
  }
  gradients_.push_back(x_is_constant_ ? nullptr : input_.gradient()->Take());
  return std::move(gradients_);
}

}  // namespace tandem::plan
