#include "common/model/hidden_matrices.h"

namespace tandem::model {

bool HoldsHiddenMatrices(const ParameterTable& table, int parameter) {
  return table.parameter(parameter).role == ParameterRole::kMatrix && parameter != table.lm_head();
}

bool IsMatrix(const Segment& segment) {
  const std::vector<int64_t>& shape = segment.global_shape;
  return shape.size() == 2 && shape[0] > 1 && shape[1] > 1;
}

std::vector<HiddenMatrix> HiddenMatricesOf(const ParameterTable& table, int unit) {
  std::vector<HiddenMatrix> out;
  for (const int index : table.units()[unit].parameters) {
    if (!HoldsHiddenMatrices(table, index)) continue;
    for (const Segment& segment : table.parameter(index).segments) {
      if (segment.numel == 0 || !IsMatrix(segment)) continue;
      out.push_back({segment.offset, segment.shape[0], segment.shape[1]});
    }
  }
  return out;
}

}  // namespace tandem::model
