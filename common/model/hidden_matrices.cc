#include "common/model/hidden_matrices.h"

namespace tandem::model {

bool HoldsHiddenMatrices(const ParameterTable& table, int parameter) {
  return table.parameter(parameter).role == ParameterRole::kMatrix && parameter != table.lm_head();
}

bool IsMatrix(const Segment& segment) {
  return segment.shape.size() == 2 && segment.shape[0] > 1 && segment.shape[1] > 1;
}

std::vector<HiddenMatrix> HiddenMatricesOf(const ParameterTable& table, int unit) {
  std::vector<HiddenMatrix> out;
  for (const int index : table.units()[unit].parameters) {
    if (!HoldsHiddenMatrices(table, index)) continue;
    for (const Segment& segment : table.parameter(index).segments) {
      if (IsMatrix(segment)) out.push_back({segment.offset, segment.shape[0], segment.shape[1]});
    }
  }
  return out;
}

}  // namespace tandem::model
