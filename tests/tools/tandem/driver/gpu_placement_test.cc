#include "tools/tandem/driver/gpu_placement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/status_matchers.h"

namespace tandem::driver {
namespace {

using ::tandem::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

host::GpuFacts Gpus(int count) {
  host::GpuFacts facts;
  facts.architectures = "90";
  for (int i = 0; i < count; ++i) facts.gpus.push_back({.id = std::to_string(i)});
  return facts;
}

TEST(GpuPlacement, GivesEveryProcessItsOwnGpuWhileThereAreEnough) {
  ASSERT_OK_AND_ASSIGN(const GpuPlacement placement,
                       PlaceOnGpus({.trainer_ranks = 2, .replica_ranks = {1, 2}}, Gpus(8)));
  EXPECT_THAT(placement.trainer, ElementsAre("0", "1"));
  EXPECT_THAT(placement.replicas, ElementsAre(ElementsAre("2"), ElementsAre("3", "4")));
}

TEST(GpuPlacement, TrainerAndRolloutShareGpusWhenThereAreTooFew) {
  ASSERT_OK_AND_ASSIGN(const GpuPlacement placement,
                       PlaceOnGpus({.trainer_ranks = 2, .replica_ranks = {1, 1, 1}}, Gpus(2)));
  EXPECT_THAT(placement.trainer, ElementsAre("0", "1"));
  EXPECT_THAT(placement.replicas,
              ElementsAre(ElementsAre("0"), ElementsAre("1"), ElementsAre("0")));
}

TEST(GpuPlacement, LeavesRolesOnTheCpuOrOnAStatedGpuAlone) {
  ASSERT_OK_AND_ASSIGN(const GpuPlacement placement, PlaceOnGpus({.trainer_device = "cuda:3",
                                                                  .rollout_device = "cpu",
                                                                  .trainer_ranks = 1,
                                                                  .replica_ranks = {1}},
                                                                 Gpus(4)));
  EXPECT_THAT(placement.trainer, IsEmpty());
  EXPECT_THAT(placement.replicas, IsEmpty());
}

TEST(GpuPlacement, PlacesNothingWithoutGpusOrInABuildForCpus) {
  host::GpuFacts cpu_build = Gpus(2);
  cpu_build.architectures.clear();
  for (const host::GpuFacts& facts : {Gpus(0), cpu_build}) {
    ASSERT_OK_AND_ASSIGN(const GpuPlacement placement,
                         PlaceOnGpus({.trainer_ranks = 2, .replica_ranks = {1}}, facts));
    EXPECT_THAT(placement.trainer, IsEmpty());
    EXPECT_THAT(placement.replicas, IsEmpty());
  }
}

TEST(GpuPlacement, RefusesMoreRanksOfOneGroupThanGpus) {
  EXPECT_THAT(PlaceOnGpus({.trainer_ranks = 2}, Gpus(1)).status(),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("the trainer has 2 ranks")));
  EXPECT_THAT(PlaceOnGpus({.replica_ranks = {1, 4}}, Gpus(2)).status(),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("a rollout has 4 ranks")));
}

TEST(GpuPlacement, AProcessSeesOnlyItsGpu) {
  EXPECT_THAT(GpuEnvironment("3"), ::testing::Contains(::testing::Pair(
                                       std::string("CUDA_VISIBLE_DEVICES"), std::string("3"))));
  EXPECT_THAT(GpuEnvironment(""), IsEmpty());
}

}  // namespace
}  // namespace tandem::driver
