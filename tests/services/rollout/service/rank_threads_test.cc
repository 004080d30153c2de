#include "services/rollout/service/rank_threads.h"

#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "common/host/control_group.h"
#include "common/host/cpu_list.h"
#include "tests/support/status_matchers.h"

namespace tandem::rollout {
namespace {

using ::tandem::testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

comm::LaunchEnvironment Rank(int rank, int ranks) {
  comm::LaunchEnvironment environment;
  environment.local_rank = rank;
  environment.local_world_size = ranks;
  return environment;
}

class RankThreadsTest : public ::testing::Test {
 protected:
  const std::vector<int> allowed_ = host::AllowedCpus();
  config::v1::RolloutConfig config_;
};

TEST_F(RankThreadsTest, AreTheCoresSharedAmongTheRanks) {
  ASSERT_OK_AND_ASSIGN(std::vector<int> cpus, SetThreads(config_, Rank(0, 1)));
  EXPECT_THAT(cpus, IsEmpty());
  EXPECT_EQ(at::get_num_threads(), host::UsableCores());
  config_.set_tensor_model_parallel_size(4);
  ASSERT_OK(SetThreads(config_, Rank(3, 4)));
  EXPECT_EQ(at::get_num_threads(), std::max(1, host::UsableCores() / 4));
  config_.set_threads(3);
  ASSERT_OK(SetThreads(config_, Rank(3, 4)));
  EXPECT_EQ(at::get_num_threads(), 3);
}

TEST_F(RankThreadsTest, ArePinnedToTheRanksShare) {
  config_.set_cpus("auto");
  ASSERT_OK_AND_ASSIGN(std::vector<int> cpus, SetThreads(config_, Rank(0, 1)));
  EXPECT_EQ(cpus, allowed_);
  EXPECT_EQ(at::get_num_threads(), static_cast<int>(allowed_.size()));
  if (allowed_.size() < 2) GTEST_SKIP() << "needs two CPUs, may run on " << allowed_.size();
  config_.set_cpus(absl::StrCat(allowed_[1], ",", allowed_[0]));
  config_.set_tensor_model_parallel_size(2);
  ASSERT_OK_AND_ASSIGN(cpus, SetThreads(config_, Rank(0, 2)));
  EXPECT_THAT(cpus, ElementsAre(allowed_[1]));
  EXPECT_EQ(at::get_num_threads(), 1);
  ASSERT_OK_AND_ASSIGN(cpus, SetThreads(config_, Rank(1, 2)));
  EXPECT_THAT(cpus, ElementsAre(allowed_[0]));
}

TEST_F(RankThreadsTest, SayWhichCpusMayNotBeUsedOrAreTooFew) {
  config_.set_cpus("1023");
  EXPECT_THAT(SetThreads(config_, Rank(0, 1)).status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("rollout.cpus"), HasSubstr("not on 1023"))));
  config_.set_cpus(absl::StrCat(allowed_[0]));
  config_.set_threads(2);
  EXPECT_THAT(SetThreads(config_, Rank(0, 1)).status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("rollout.cpus"), HasSubstr("for 2 threads"))));
  config_.set_tensor_model_parallel_size(2);
  EXPECT_THAT(SetThreads(config_, Rank(1, 2)).status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("rollout.cpus"), HasSubstr("2 ranks share"))));
}

}  // namespace
}  // namespace tandem::rollout
