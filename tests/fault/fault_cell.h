// One cell of the fault matrix, run and judged with gtest's expectations.
#ifndef TANDEM_TESTS_FAULT_FAULT_CELL_H_
#define TANDEM_TESTS_FAULT_FAULT_CELL_H_

#include "tests/fault/fault_matrix.h"

namespace tandem::testing {

void RunCell(const Cell& cell);

}  // namespace tandem::testing

#endif  // TANDEM_TESTS_FAULT_FAULT_CELL_H_
