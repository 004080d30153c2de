// LayerProfile: what the passes of a layer do to the sum of memory. Most layers of a model are
// alike, so their operations are counted once (layer_memory.h), and LayerReplay gives a ledger the
// same peaks and the same sums for each of them.
//
//   const LayerProfile profile = ProfileLayer(table, batch, spec.layers[0], 0, saves);
//   LayerReplay layer(ledger, profile);   // of this layer, or of one like it
//   x = layer.Forward(x);
//   std::vector<Size> gradients = layer.Backward();
#ifndef TANDEM_TOOLS_TANDEM_PLAN_LAYER_PROFILE_H_
#define TANDEM_TOOLS_TANDEM_PLAN_LAYER_PROFILE_H_

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "common/model/carried_tensors.h"
#include "common/model/model_spec.h"
#include "common/model/parameter_table.h"
#include "common/sharding/pass_stages.h"
#include "tools/tandem/plan/counted_ops.h"
#include "tools/tandem/plan/memory_ledger.h"

namespace tandem::plan {

struct LayerProfile {
  // How far the sum rises above what it was before the pass, at the peak.
  KindBytes forward_peak{}, backward_peak{};
  KindBytes saved{};  // from forward to backward, besides the layer's input and output
  int64_t output_bytes = 0;
  std::vector<int64_t> made_bytes;  // of the carried tensors that the layer makes
  bool has_graph = false;           // the rest is for a layer with one
  KindBytes parameter_gradients{};
  int64_t input_gradient_bytes = 0;
  bool has_input_gradient = false;
  std::vector<int64_t> read_gradient_bytes;  // of the carried tensors that it reads; 0: none
};

// Counts the operations of a layer. The arguments are those of LayerMemory.
LayerProfile ProfileLayer(const model::ParameterTable& table, const CountedBatch& batch,
                          const model::LayerSpec& spec, int64_t layer, sharding::Saves saves);

// LayerMemory's passes by a profile.
class LayerReplay {
 public:
  // The arguments must outlive it.
  LayerReplay(MemoryLedger& ledger, const LayerProfile& profile)
      : ledger_(ledger), profile_(profile) {}

  // x, result: [tokens, hidden]. `made`, if not null, receives what the layer makes besides.
  Size Forward(const Size& x, std::vector<Size>* made = nullptr);
  // Frees what the forward pass saved; the caller holds the gradients of its results. Returns the
  // gradients of the parameters, then that of x; the latter is null if no stage before the layer
  // trains.
  std::vector<Size> Backward();
  // After that: as LayerMemory's.
  std::vector<Size> TakeReadGradients();

 private:
  std::vector<Size> TakeAll(const KindBytes& bytes);

  MemoryLedger& ledger_;
  const LayerProfile& profile_;
  Size input_;
  std::vector<Size> saved_;
};

// The profiles of a model's layers, each made when it is first asked for.
class LayerProfiles {
 public:
  // The arguments must outlive it.
  LayerProfiles(const model::ModelSpec& spec, const model::ParameterTable& table,
                const CountedBatch& batch);

  // The reference stays valid.
  const LayerProfile& Of(int64_t layer, sharding::Saves saves);

 private:
  // Whether other layers read what the layer makes.
  bool MakesCarried(int64_t layer) const;
  // Whether the operations of both layers take the same memory.
  bool AreAlike(int64_t a, int64_t b) const;

  const model::ModelSpec& spec_;
  const model::ParameterTable& table_;
  const CountedBatch& batch_;
  const std::vector<model::CarriedTensor> carried_;
  std::vector<int64_t> first_alike_;  // of each layer: the first one like it
  std::map<std::pair<int64_t, sharding::Saves>, LayerProfile> profiles_;
};

}  // namespace tandem::plan

#endif  // TANDEM_TOOLS_TANDEM_PLAN_LAYER_PROFILE_H_
