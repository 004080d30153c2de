// LayerMemory: the memory of one layer's forward and backward pass.
//
//   LayerMemory layer(ledger, table, batch, spec.layers[i], i, sharding::Saves::kEverything);
//   x = layer.Forward(x);
//   std::vector<Size> gradients = layer.Backward(gradient);
#ifndef TANDEM_TOOLS_TANDEM_PLAN_LAYER_MEMORY_H_
#define TANDEM_TOOLS_TANDEM_PLAN_LAYER_MEMORY_H_

#include <cstdint>
#include <vector>

#include "common/model/carried_tensors.h"
#include "common/model/model_spec.h"
#include "common/model/parameter_table.h"
#include "common/sharding/pass_stages.h"
#include "tools/tandem/plan/counted_ops.h"
#include "tools/tandem/plan/counted_tensor.h"
#include "tools/tandem/plan/memory_ledger.h"

namespace tandem::plan {

class LayerMemory {
 public:
  // The arguments must outlive it. `layer`: index in the model.
  LayerMemory(MemoryLedger& ledger, const model::ParameterTable& table, const CountedBatch& batch,
              const model::LayerSpec& spec, int64_t layer, sharding::Saves saves);
  LayerMemory(const LayerMemory&) = delete;
  LayerMemory& operator=(const LayerMemory&) = delete;

  // x, result: [tokens, hidden]. reads: the carried tensors (common/model/carried_tensors.h) that the layer
  // reads, in their order; `made` receives those that it makes.
  Size Forward(const Size& x, const std::vector<Size>& reads, std::vector<Size>& made);
  Size Forward(const Size& x);  // of a layer without them

  // Runs the graph backward and frees what it saved on the way. Returns the gradients of the
  // parameters, then that of x; the latter is null if no stage before the layer trains. of_made: those of
  // the carried tensors that the layer makes.
  std::vector<Size> Backward(Size gradient, const std::vector<Size>& of_made = {});
  // After that, the gradients of what the layer reads; null if the stage that makes it does not train.
  std::vector<Size> TakeReadGradients() { return std::move(read_gradients_); }

 private:
  const CountedBatch& batch_;
  const model::LayerSpec& spec_;
  const model::LayerParameters& parameters_;
  const int64_t layer_;
  const std::vector<model::CarriedTensor> carried_;  // of the model
  MemoryLedger& ledger_;
  CountedTape tape_;
  CountedRecomputation recomputation_;
  std::vector<Size> gradients_;
  const sharding::Saves saves_;
  const bool x_is_constant_;  // no stage before the layer trains
  CountedOps ops_;
  CountedTensor input_;
  CountedTensor kv_, layer_input_;  // that it reads
  std::shared_ptr<CountedGradient> made_gradient_;
  std::vector<Size> read_gradients_;
  const int first_trainable_stage_;
  std::shared_ptr<CountedGradient> output_gradient_;
};

}  // namespace tandem::plan

#endif  // TANDEM_TOOLS_TANDEM_PLAN_LAYER_MEMORY_H_
