#include "tools/tandem/plan/update_plan.h"

#include <string>

#include "common/weights/reshard_check.h"
#include "tests/support/status_matchers.h"
#include "tools/tandem/plan/model_shape.h"

namespace tandem::plan {
namespace {

using ::tandem::testing::IsOk;
using ::testing::HasSubstr;

UpdatePlanRequest UpdateRequest() {
  UpdatePlanRequest request;
  request.model_shape = "llama-7b";
  request.trainer_ranks = 16;
  request.rollout_ranks = 32;
  request.rollout_tensor_parallel = 4;
  return request;
}

TEST(UpdatePlan, SendsEachByteOnceAndEvenly) {
  const absl::StatusOr<UpdatePlan> plan = MakeUpdatePlan(UpdateRequest());
  ASSERT_THAT(plan.status(), IsOk());
  EXPECT_EQ(plan->parameters, 6738415616);
  EXPECT_EQ(plan->model_bytes, 2 * plan->parameters);
  EXPECT_EQ(plan->fleet.feed->total_bytes(), plan->model_bytes);
  EXPECT_LE(weights::BalanceOf(*plan->fleet.feed).max_over_mean, 1.02);
  EXPECT_EQ(plan->fleet.replica_ranks.size(), 8);
}

TEST(UpdatePlan, PredictsThatLessOnTheWireTakesLessTime) {
  const UpdatePlan plan = *MakeUpdatePlan(UpdateRequest());
  // 13.5 GB: by the leader's NIC of 50 GB/s, or by those of a replica.
  EXPECT_NEAR(plan.broadcast.seconds, 13.5 / 50, 0.02);
  EXPECT_NEAR(plan.reshard.seconds, 13.5 / 50 / 4, 0.02);
  EXPECT_LT(plan.delta.seconds, plan.reshard.seconds / 5);
}

TEST(UpdatePlan, CoversAModelOfExperts) {
  UpdatePlanRequest request = UpdateRequest();
  request.model_shape = "qwen3-235b-a22b";
  request.trainer_ranks = 64;
  request.trainer_tensor_parallel = 4;
  const absl::StatusOr<UpdatePlan> plan = MakeUpdatePlan(request);
  ASSERT_THAT(plan.status(), IsOk());
  EXPECT_EQ(plan->parameters, 235093634560);
  EXPECT_EQ(FindModelShape("qwen3-235b-a22b")->num_active_parameters(), 22190763520);
}

TEST(UpdatePlan, NamesTheFlagThatIsWrong) {
  const auto refuses = [](auto change, const char* message) {
    UpdatePlanRequest request = UpdateRequest();
    change(request);
    const absl::Status status = MakeUpdatePlan(request).status();
    EXPECT_FALSE(status.ok());
    EXPECT_THAT(std::string(status.message()), HasSubstr(message));
  };
  using R = UpdatePlanRequest;
  refuses([](R& r) { r.model_shape = "llama-7c"; }, "did you mean 'llama-7b'?");
  refuses([](R& r) { r.model_shape = "qwen3-30b-a4b"; }, "did you mean 'qwen3-30b-a3b'?");
  refuses([](R& r) { r.trainer_ranks = 0; }, "--trainer-ranks 0");
  refuses([](R& r) { r.rollout_ranks = -8; }, "--rollout-ranks -8");
  refuses([](R& r) { r.rollout_ranks = 30; }, "multiple of --tensor-model-parallel-size");
  refuses([](R& r) { r.dp_replicate = 3; }, "--dp-replicate, which is 3");
  refuses([](R& r) { r.rollout_tensor_parallel = 0; }, "--tensor-model-parallel-size 0");
  refuses([](R& r) { r.bucket_bytes = 0; }, "--bucket-megabytes 0");
  refuses([](R& r) { r.density = 1.5; }, "--density 1.5");
  refuses([](R& r) { r.dtype = "int8"; }, "--dtype int8");
  refuses([](R& r) { r.hardware = "h1000"; }, "did you mean 'h100'?");
  refuses([](R& r) { r.hardware = "h100x8x3"; }, "need 6 hosts");
}

TEST(ModelShapes, HaveShortNames) {
  EXPECT_EQ(FindModelShape("7b")->num_parameters(), 6738415616);
  EXPECT_EQ(FindModelShape("llama-405b")->num_parameters(),
            FindModelShape("llama-3.1-405b")->num_parameters());
}

}  // namespace
}  // namespace tandem::plan
