// The fault matrix of weight updates, every cell.
#include <gtest/gtest.h>

#include "tests/fault/fault_cell.h"

namespace tandem::testing {
namespace {

class WeightUpdateFaults : public ::testing::TestWithParam<Cell> {};

TEST_P(WeightUpdateFaults, AreNamedTearNothingAndPass) { RunCell(GetParam()); }

INSTANTIATE_TEST_SUITE_P(All, WeightUpdateFaults, ::testing::ValuesIn(AllCells()),
                         [](const auto& info) { return Name(info.param); });

}  // namespace
}  // namespace tandem::testing
