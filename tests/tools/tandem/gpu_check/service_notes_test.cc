#include "tools/tandem/gpu_check/service_notes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/temp_folder.h"

namespace tandem::gpu_check {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

constexpr const char* kLog =
    "2026-11-26T10:00:00.000Z INFO the rollout computes on role=rollout device=\"cuda:0, NVIDIA "
    "H100, driver 580.65.06\"\n"
    "2026-11-26T10:00:01.000Z INFO rollout ready role=rollout device=cuda:0 port=1\n"
    "2026-11-26T10:00:02.000Z WARNING capturing a CUDA graph failed role=rollout rows=4\n"
    "2026-11-26T10:00:03.000Z INFO a WARNING that is none\n";

TEST(ServiceNotes, HasTheDeviceOfTheStartAndTheWarnings) {
  ServiceNotes notes;
  ReadServiceLog("rollout-0", kLog, notes);

  EXPECT_THAT(notes.devices,
              ElementsAre(Pair("rollout-0", "cuda:0, NVIDIA H100, driver 580.65.06")));
  EXPECT_THAT(notes.warnings,
              ElementsAre("rollout-0: capturing a CUDA graph failed role=rollout rows=4"));
  EXPECT_EQ(notes.process_on_cpu(), "");
}

TEST(ServiceNotes, ReadsEveryLogOfARunAndNamesWhatComputedOnACpu) {
  const testing::TempFolder folder;
  folder.Write("logs/rollout-0.log", kLog);
  folder.Write("logs/trainer-0.log", "2026-11-26T10:00:00.000Z INFO rank=0 device=\"cpu: none\"\n");
  folder.Write("logs/other.txt", kLog);
  const ServiceNotes notes = ReadServiceNotes(folder.path());

  EXPECT_EQ(notes.devices.size(), 2);
  EXPECT_EQ(notes.process_on_cpu(), "trainer-0");
  EXPECT_EQ(notes.warnings.size(), 1);
}

TEST(ServiceNotes, OfAFolderWithoutLogsAreEmpty) {
  EXPECT_TRUE(ReadServiceNotes("/no/such/folder").devices.empty());
}

}  // namespace
}  // namespace tandem::gpu_check
