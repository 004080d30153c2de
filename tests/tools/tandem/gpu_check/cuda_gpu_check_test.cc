// `tandem gpu-check` on a GPU: what it checks passes, and its file says so.
#include <gtest/gtest.h>

#include "nlohmann/json.hpp"
#include "tests/support/cuda_device.h"
#include "tests/support/program.h"

namespace tandem {
namespace {

TEST(CudaGpuCheck, ComparesAndMeasures) {
  TANDEM_SKIP_WITHOUT_CUDA();
  const testing::TempFolder folder;
  const std::string output = folder / "found.json";

  const testing::ProgramResult result =
      testing::RunProgram("tandem", {"gpu-check", "--output", output}, /*timeout_seconds=*/580);

  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  const nlohmann::json found = nlohmann::json::parse(testing::ReadWhole(output));
  EXPECT_EQ(found["passed"], true);
  EXPECT_EQ(found["checks"]["facts"]["measured"]["gpus"][0]["runs_here"], true);
  for (const nlohmann::json& one : found["checks"]["kernels"]["measured"]["comparisons"]) {
    EXPECT_EQ(one["ours"], true) << one;
  }
}

}  // namespace
}  // namespace tandem
