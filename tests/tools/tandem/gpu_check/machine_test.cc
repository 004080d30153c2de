#include "tools/tandem/gpu_check/machine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/status_matchers.h"

namespace tandem::gpu_check {
namespace {

using ::tandem::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

nlohmann::json Facts() {
  return {{"driver", "580.65.06"},
          {"built_for", "90-real,120"},
          {"problem", ""},
          {"gpus",
           {{{"name", "NVIDIA H100"}, {"compute_capability", "9.0"}, {"memory_bytes", 80}},
            {{"name", "NVIDIA L4"}, {"compute_capability", "8.9"}, {"memory_bytes", 24}}}}};
}

TEST(Machine, HasTheFactsOfTheDevicesProgram) {
  const Machine machine = MachineOf(Facts());

  EXPECT_EQ(machine.facts.driver, "580.65.06");
  ASSERT_EQ(machine.facts.gpus.size(), 2);
  EXPECT_EQ(machine.facts.gpus[1].name, "NVIDIA L4");
  EXPECT_EQ(machine.facts.gpus[1].id, "1");
  EXPECT_EQ(machine.facts.gpus[1].major, 8);
  EXPECT_EQ(machine.facts.gpus[1].minor, 9);
  EXPECT_EQ(machine.memory_bytes, 80);
  EXPECT_OK(RequireGpu(machine.facts));
}

TEST(RequireGpu, RefusesABuildForCpusWithTheDriverFoundAndNeeded) {
  EXPECT_THAT(RequireGpu({.driver = "550.1"}),
              StatusIs(absl::StatusCode::kUnimplemented,
                       AllOf(HasSubstr("tools/build cuda"), HasSubstr("driver found: 550.1"),
                             HasSubstr("needed: driver 580"))));
  EXPECT_THAT(RequireGpuBuild({}),
              StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("driver found: none")));
}

TEST(RequireGpu, RefusesAMachineWithoutGpusWithTheDriverFoundAndNeeded) {
  EXPECT_THAT(RequireGpu({.architectures = "90", .problem = "no CUDA-capable device"}),
              StatusIs(absl::StatusCode::kUnavailable,
                       AllOf(HasSubstr("no CUDA-capable device"), HasSubstr("driver found: none"),
                             HasSubstr("needed: driver 580"))));
  EXPECT_OK(RequireGpuBuild({.architectures = "90"}));
}

TEST(RequireGpu, RefusesAGpuThatTheBuildHasNoCodeFor) {
  nlohmann::json facts = Facts();
  facts["built_for"] = "90-real";
  facts["gpus"][0]["compute_capability"] = "8.0";

  EXPECT_THAT(RequireGpu(MachineOf(facts).facts),
              StatusIs(absl::StatusCode::kUnimplemented,
                       AllOf(HasSubstr("compute capability 8.0"),
                             HasSubstr("-DTANDEM_CUDA_ARCHITECTURES=80"))));
}

}  // namespace
}  // namespace tandem::gpu_check
