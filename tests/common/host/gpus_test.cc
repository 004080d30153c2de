#include "common/host/gpus.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"

namespace tandem::host {
namespace {

using ::tandem::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr const char* kRelease = "80-real,86-real,89-real,90-real,100-real,120";

GpuFacts Machine(int num_gpus) {
  GpuFacts facts;
  facts.architectures = kRelease;
  facts.driver = "580.65.06";
  for (int i = 0; i < num_gpus; ++i) {
    facts.gpus.push_back({.id = std::to_string(i), .name = "NVIDIA H100", .major = 9, .minor = 0});
  }
  return facts;
}

absl::StatusOr<DeviceChoice> Choose(const std::string& setting, int local_rank,
                                    const GpuFacts& facts) {
  return ChooseDevice("trainer.device", setting, local_rank, facts);
}

TEST(Gpus, AutoTakesTheGpuOfTheLocalRank) {
  ASSERT_OK_AND_ASSIGN(const DeviceChoice choice, Choose("auto", 2, Machine(4)));
  EXPECT_EQ(choice.gpu, 2);
  EXPECT_EQ(choice.description, "cuda:2, NVIDIA H100, compute capability 9.0, driver 580.65.06");
}

TEST(Gpus, TheOnlyVisibleGpuIsEveryLocalRanks) {
  ASSERT_OK_AND_ASSIGN(const DeviceChoice choice, Choose("cuda", 3, Machine(1)));
  EXPECT_EQ(choice.gpu, 0);
}

TEST(Gpus, AnIndexIsTakenAsItIs) {
  ASSERT_OK_AND_ASSIGN(const DeviceChoice choice, Choose("cuda:1", 0, Machine(4)));
  EXPECT_EQ(choice.gpu, 1);
}

TEST(Gpus, AutoIsTheCpuWithoutAGpuAndInABuildForCpus) {
  GpuFacts cpu_build = Machine(1);
  cpu_build.architectures.clear();
  for (const GpuFacts& facts : {Machine(0), cpu_build}) {
    ASSERT_OK_AND_ASSIGN(const DeviceChoice choice, Choose("auto", 0, facts));
    EXPECT_FALSE(choice.on_gpu());
    EXPECT_THAT(choice.description, HasSubstr("cpu"));
  }
}

TEST(Gpus, CudaIsNeverTheCpu) {
  GpuFacts old = Machine(0);
  old.driver = "550.54.15";
  EXPECT_THAT(Choose("cuda", 0, old).status(),
              StatusIs(absl::StatusCode::kUnavailable,
                       AllOf(HasSubstr("driver 550.54.15 is too old"),
                             HasSubstr("CUDA 13 needs driver 580"), HasSubstr("trainer.device"))));
  GpuFacts none = Machine(0);
  none.driver.clear();
  EXPECT_THAT(Choose("cuda", 0, none).status(),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("no NVIDIA driver is loaded")));
  GpuFacts cpu_build = Machine(1);
  cpu_build.architectures.clear();
  EXPECT_THAT(Choose("cuda", 0, cpu_build).status(),
              StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("-DTANDEM_CUDA=ON")));
}

TEST(Gpus, AGpuThatDoesNotExistIsRefused) {
  EXPECT_THAT(Choose("cuda:4", 0, Machine(4)).status(),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("GPU 4 is wanted")));
  EXPECT_THAT(Choose("auto", 2, Machine(2)).status(),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("start fewer ranks")));
}

TEST(Gpus, AGpuWithoutCodeIsRefusedByName) {
  GpuFacts volta = Machine(1);
  volta.gpus[0] = {.id = "0", .name = "Tesla V100", .major = 7, .minor = 0};
  EXPECT_THAT(Choose("auto", 0, volta).status(),
              StatusIs(absl::StatusCode::kUnimplemented,
                       AllOf(HasSubstr("Tesla V100"), HasSubstr("TANDEM_CUDA_ARCHITECTURES=70"))));
}

TEST(Gpus, CodeRunsOnLaterMinorsAndPtxOnLaterMajors) {
  EXPECT_TRUE(RunsOn("80-real", 8, 6));
  EXPECT_FALSE(RunsOn("86-real", 8, 0));
  EXPECT_FALSE(RunsOn("80-real", 9, 0));
  EXPECT_TRUE(RunsOn("80", 9, 0));
  EXPECT_TRUE(RunsOn("80-virtual", 12, 1));
  EXPECT_TRUE(RunsOn("90a-real", 9, 0));
  EXPECT_FALSE(RunsOn("90a", 10, 0));
  for (const auto& [major, minor] :
       {std::pair{8, 0}, {8, 6}, {8, 9}, {9, 0}, {10, 0}, {10, 3}, {12, 0}, {12, 1}, {13, 0}}) {
    EXPECT_TRUE(RunsOn(kRelease, major, minor)) << major << "." << minor;
  }
  EXPECT_FALSE(RunsOn(kRelease, 7, 5));
}

TEST(Gpus, ReadsTheDriversFiles) {
  testing::TempFolder folder;
  folder.Write("sys/module/nvidia/version", "580.65.06\n");
  folder.Write("proc/driver/nvidia/gpus/0000:0a:00.0/information",
               "Model: \t\t NVIDIA A100\nIRQ:   \t\t 12\n");
  folder.Write("proc/driver/nvidia/gpus/0000:0b:00.0/information", "Model: \t\t NVIDIA L40S\n");
  const std::string root = folder.path() + "/";
  const GpuFacts all = ReadGpuFacts(root, nullptr);
  EXPECT_EQ(all.driver, "580.65.06");
  ASSERT_EQ(all.gpus.size(), 2u);
  EXPECT_EQ(all.gpus[0].name, "NVIDIA A100");
  const GpuFacts one = ReadGpuFacts(root, "1");
  ASSERT_EQ(one.gpus.size(), 1u);
  EXPECT_EQ(one.gpus[0].name, "NVIDIA L40S");
  EXPECT_EQ(ReadGpuFacts(root, "GPU-8932f937").gpus.size(), 1u);
  EXPECT_TRUE(ReadGpuFacts(root, "").gpus.empty());
  EXPECT_TRUE(ReadGpuFacts(root, "5").gpus.empty());
  EXPECT_TRUE(ReadGpuFacts(root + "elsewhere/", "0").gpus.empty());
}

}  // namespace
}  // namespace tandem::host
