// The hidden matrices of a unit: the tensors that Muon updates as matrices.
#ifndef TANDEM_COMMON_MODEL_HIDDEN_MATRICES_H_
#define TANDEM_COMMON_MODEL_HIDDEN_MATRICES_H_

#include <cstdint>
#include <vector>

#include "common/model/parameter_table.h"

namespace tandem::model {

struct HiddenMatrix {
  int64_t offset = 0;  // first element within the unit's flat buffer
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t numel() const { return rows * columns; }
};

// Whether a linear layer between embedding and output head multiplies by the parameter: neither a
// norm, a bias, the embedding nor a head.
bool HoldsHiddenMatrices(const ParameterTable& table, int parameter);

// Whether a segment of such a parameter is a matrix: two dimensions, more than one row and column.
bool IsMatrix(const Segment& segment);

// The matrices of the unit's segments, by offset. Each tensor of the Hugging Face folder is one: q,
// k, v, gate, up, and every expert's own. Requires a table without tensor parallelism.
std::vector<HiddenMatrix> HiddenMatricesOf(const ParameterTable& table, int unit);

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_HIDDEN_MATRICES_H_
