// ExpertLoad: how many rows the experts of each layer computed.
//
//   ExpertLoad load(model.spec());
//   const RouterPass routers{.load = &load};
//   x = model.Block(params, layer, x, rotary, attention, nullptr, &routers);
//   for (const int64_t rows : load.Take()[layer]) Use(rows);
#ifndef TANDEM_COMMON_MODEL_EXPERT_LOAD_H_
#define TANDEM_COMMON_MODEL_EXPERT_LOAD_H_

#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/diff.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/model/expert_rows.h"
#include "common/model/model_spec.h"

namespace tandem::model {

// Single-threaded.
class ExpertLoad {
 public:
  explicit ExpertLoad(const ModelSpec& spec) {
    for (const LayerSpec& layer : spec.layers) {
      rows_.emplace_back(layer.experts.has_value() ? layer.experts->num_experts : 0, 0);
    }
    on_device_.resize(rows_.size());
  }

  // Adds the rows of a batch in a layer. Does not wait for a GPU.
  void Add(int64_t layer, const ExpertRows& rows) {
    if (!rows.first.is_cpu()) {
      at::Tensor& counts = on_device_[static_cast<size_t>(layer)];
      const at::Tensor added = at::diff(rows.first);
      counts = counts.defined() ? counts + added : added;
      return;
    }
    std::vector<int64_t>& counts = rows_[layer];
    const int64_t* const first = rows.first.const_data_ptr<int64_t>();
    for (size_t e = 0; e < counts.size(); ++e) counts[e] += first[e + 1] - first[e];
  }

  // Returns for each layer the rows of its experts, none for a dense layer, and restarts the counts.
  // Waits for the GPU that has them.
  std::vector<std::vector<int64_t>> Take() {
    std::vector<std::vector<int64_t>> taken = rows_;
    std::vector<at::Tensor> there;
    for (size_t i = 0; i < rows_.size(); ++i) {
      rows_[i].assign(rows_[i].size(), 0);
      if (on_device_[i].defined()) there.push_back(on_device_[i]);
    }
    if (there.empty()) return taken;
    const at::Tensor counts = at::cat(there).cpu();  // one wait for all layers
    const int64_t* count = counts.const_data_ptr<int64_t>();
    for (size_t i = 0; i < rows_.size(); ++i) {
      if (!on_device_[i].defined()) continue;
      for (int64_t& rows : taken[i]) rows += *count++;
      on_device_[i].reset();
    }
    return taken;
  }

 private:
  std::vector<std::vector<int64_t>> rows_;
  std::vector<at::Tensor> on_device_;  // of each layer; undefined: none
};

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_EXPERT_LOAD_H_
