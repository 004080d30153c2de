// ExpertLoad: how many rows the experts of each layer computed.
//
//   ExpertLoad load(model.spec());
//   const RouterPass routers{.load = &load};
//   x = model.Block(params, layer, x, rotary, attention, nullptr, &routers);
//   for (const int64_t rows : load.rows()[layer]) Use(rows);
#ifndef TANDEM_COMMON_MODEL_EXPERT_LOAD_H_
#define TANDEM_COMMON_MODEL_EXPERT_LOAD_H_

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
  }

  // Adds the rows of a batch in a layer.
  void Add(int64_t layer, const ExpertRows& rows) {
    std::vector<int64_t>& counts = rows_[layer];
    const int64_t* const first = rows.first.const_data_ptr<int64_t>();
    for (size_t e = 0; e < counts.size(); ++e) counts[e] += first[e + 1] - first[e];
  }

  void Clear() {
    for (std::vector<int64_t>& counts : rows_) counts.assign(counts.size(), 0);
  }

  // For each layer the rows of its experts; none for a dense layer.
  const std::vector<std::vector<int64_t>>& rows() const { return rows_; }

 private:
  std::vector<std::vector<int64_t>> rows_;
};

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_EXPERT_LOAD_H_
