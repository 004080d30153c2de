// Splits that a model, or a device, does not take.
#include "common/model/parallel_fit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/common/model/split_models.h"
#include "tests/support/status_matchers.h"

namespace tandem::model {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(TensorParallelCheck, RefusesMoreRanksThanKeyValueHeads) {
  EXPECT_THAT(
      CheckTensorParallel(LlamaSpec(), 5),
      tandem::testing::StatusIs(absl::StatusCode::kInvalidArgument,
                                AllOf(HasSubstr("5 ranks"), HasSubstr("4 key-value heads"))));
  EXPECT_OK(CheckTensorParallel(LlamaSpec(), 4));
}

TEST(TensorParallelCheck, RefusesMoreRanksThanInnerUnitsOfAnExpert) {
  ModelSpec spec = ExpertsSpec();
  spec.layers.back().experts->intermediate_size = 3;
  EXPECT_THAT(CheckTensorParallel(spec, 4),
              tandem::testing::StatusIs(
                  absl::StatusCode::kInvalidArgument,
                  AllOf(HasSubstr("4 ranks"), HasSubstr("3 inner units of an expert"))));
  spec.layers.back().experts->intermediate_size = 4;
  spec.layers.back().experts->shared_intermediate_size = 3;
  EXPECT_THAT(CheckTensorParallel(spec, 4),
              tandem::testing::StatusIs(absl::StatusCode::kInvalidArgument,
                                        HasSubstr("3 inner units of a shared expert")));
}

TEST(RolloutDeviceCheck, RefusesHeadsAndLatentsBeyondThoseOfAGpusAttention) {
  ModelSpec spec = Qwen3Spec();
  spec.layers.back().attention.head_dim = 520;
  EXPECT_OK(CheckRolloutDevice(spec, "auto"));
  EXPECT_THAT(CheckRolloutDevice(spec, "cuda"),
              tandem::testing::StatusIs(
                  absl::StatusCode::kUnimplemented,
                  AllOf(HasSubstr("heads of 520 elements"), HasSubstr("rollout.device=cpu"))));
  spec = LatentModelSpec(9);
  EXPECT_OK(CheckRolloutDevice(spec, "cuda"));
  for (LayerSpec& layer : spec.layers) layer.attention.latent->kv_rank = 768;
  EXPECT_THAT(CheckRolloutDevice(spec, "cuda"),
              tandem::testing::StatusIs(absl::StatusCode::kUnimplemented,
                                        HasSubstr("latents of 768 elements, 772 with")));
}

TEST(RolloutDeviceCheck, TakesExpertsOnAGpu) {
  for (const char* device : {"", "cpu", "auto", "cuda:1"}) {
    EXPECT_OK(CheckRolloutDevice(ExpertsSpec(), device));
    EXPECT_OK(CheckRolloutDevice(Qwen3Spec(), device));
  }
}

TEST(RolloutDeviceCheck, TakesLatentAttentionAndValuesOfAnotherSizeOnAGpu) {
  EXPECT_OK(CheckRolloutDevice(LatentModelSpec(9), "cuda"));
  ModelSpec spec = Qwen3Spec();
  for (LayerSpec& layer : spec.layers) layer.attention.v_head_dim = 6;
  EXPECT_OK(CheckRolloutDevice(spec, "cuda"));
}

TEST(TensorParallelCheck, RefusesMoreRanksThanKeyHeadsOfLinearAttention) {
  EXPECT_OK(CheckTensorParallel(LinearSpec(), 3));
  EXPECT_THAT(CheckTensorParallel(LinearSpec(), 4, KvHeadCopies::kAllowed),
              tandem::testing::StatusIs(
                  absl::StatusCode::kInvalidArgument,
                  AllOf(HasSubstr("4 ranks"), HasSubstr("3 key heads of linear attention"))));
}

TEST(ParallelFit, RefusesLinearAttentionOfSharedSequencesAndOfLargeHeadsOnAGpu) {
  EXPECT_OK(CheckTrainerDevice(LlamaSpec(), /*on_gpu=*/true));
  ModelSpec spec = LinearSpec();
  EXPECT_OK(CheckSequenceParallel(spec, 1, 1));
  EXPECT_OK(CheckTrainerDevice(spec, /*on_gpu=*/true));
  EXPECT_OK(CheckRolloutDevice(spec, "cuda"));
  EXPECT_THAT(CheckSequenceParallel(spec, 1, 2),
              tandem::testing::StatusIs(absl::StatusCode::kUnimplemented,
                                        HasSubstr("the model has linear attention")));
  for (int64_t DeltaSpec::*const dim : {&DeltaSpec::key_dim, &DeltaSpec::value_dim}) {
    spec = LinearSpec();
    for (LayerSpec& layer : spec.layers) {
      if (layer.attention.delta.has_value()) (*layer.attention.delta).*dim = 257;
    }
    EXPECT_OK(CheckTrainerDevice(spec, /*on_gpu=*/false));
    EXPECT_OK(CheckRolloutDevice(spec, "auto"));
    for (const absl::Status& refusal :
         {CheckTrainerDevice(spec, /*on_gpu=*/true), CheckRolloutDevice(spec, "cuda")}) {
      EXPECT_THAT(refusal,
                  tandem::testing::StatusIs(
                      absl::StatusCode::kUnimplemented,
                      HasSubstr("linear attention with heads of 257 elements, more than 256")));
    }
  }
}

TEST(RolloutDeviceCheck, TakesSlidingWindowsOnAGpu) {
  ModelSpec spec = Qwen3Spec();
  spec.layers.back().attention.window = 8;
  EXPECT_OK(CheckRolloutDevice(spec, "auto"));
  EXPECT_OK(CheckRolloutDevice(spec, "cuda"));
}

TEST(WholeExpertsCheck, RefusesExpertsThatRanksCannotShare) {
  EXPECT_THAT(CheckWholeExperts(ExpertsSpec(), 2),
              tandem::testing::StatusIs(
                  absl::StatusCode::kInvalidArgument,
                  AllOf(HasSubstr("rollout.enable_expert_parallel: layer 1 has 3 experts"),
                        HasSubstr("2 ranks cannot share evenly"))));
  EXPECT_THAT(CheckWholeExperts(LlamaSpec(), 2),
              tandem::testing::StatusIs(absl::StatusCode::kInvalidArgument,
                                        HasSubstr("the model has no experts")));
}

TEST(SequenceParallelCheck, RefusesHeadsThatCannotBeSplit) {
  ModelSpec spec = LlamaSpec();  // 8 heads, 4 key-value heads
  EXPECT_THAT(CheckSequenceParallel(spec, 1, 3),
              tandem::testing::StatusIs(absl::StatusCode::kInvalidArgument,
                                        AllOf(HasSubstr("3 ranks"), HasSubstr("8 query heads"),
                                              HasSubstr("4 key-value heads"))));
  EXPECT_OK(CheckSequenceParallel(spec, 1, 8));
  EXPECT_THAT(
      CheckSequenceParallel(spec, 2, 8),
      tandem::testing::StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("4 query heads")));
}

}  // namespace
}  // namespace tandem::model
