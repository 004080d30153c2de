// The fault matrix of weight updates, the cells that have every pair of its sides.
#include <gtest/gtest.h>

#include "tests/fault/fault_cell.h"

namespace tandem::testing {
namespace {

class WeightUpdateFaults : public ::testing::TestWithParam<Cell> {};

TEST_P(WeightUpdateFaults, AreNamedTearNothingAndPass) { RunCell(GetParam()); }

INSTANTIATE_TEST_SUITE_P(Pairwise, WeightUpdateFaults, ::testing::ValuesIn(PairwiseCells()),
                         [](const auto& info) { return Name(info.param); });

}  // namespace
}  // namespace tandem::testing
