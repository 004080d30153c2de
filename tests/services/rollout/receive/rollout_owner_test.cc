#include "services/rollout/receive/rollout_owner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "common/rpc/proto_duration.h"
#include "common/rpc/status_conversion.h"
#include "tests/support/error_reason.h"
#include "tests/support/status_matchers.h"

namespace tandem::rollout {
namespace {

using ::tandem::testing::ReasonOf;
using ::tandem::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

common::v1::WeightOwner Trainer(int64_t incarnation, const std::string& run,
                                absl::Duration hold = absl::Seconds(30)) {
  common::v1::WeightOwner out;
  out.set_incarnation(incarnation);
  out.set_run_id(run);
  out.set_driver("process 812 on host-3, run folder /runs/" + run);
  *out.mutable_hold() = rpc::ToProto(hold);
  return out;
}

class RolloutOwnerTest : public ::testing::Test {
 protected:
  absl::Duration now_ = absl::Hours(3);
  RolloutOwner owner_{[this] { return now_; }};
};

TEST_F(RolloutOwnerTest, RefusesAnotherRunsTrainerAndNamesTheOwner) {
  owner_.Accept(Trainer(10, "a"));
  now_ += absl::Seconds(12);

  const absl::Status refused = owner_.Check(Trainer(11, "b"));

  EXPECT_THAT(refused,
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("belongs to run a"),
                             HasSubstr("process 812 on host-3, run folder /runs/a"),
                             HasSubstr("last heartbeat 12s ago"), HasSubstr("--take-over"))));
  EXPECT_EQ(ReasonOf(refused), "FOREIGN_TRAINER");
  EXPECT_EQ(owner_.num_refused(), 1);
}

TEST_F(RolloutOwnerTest, LetsTheRunsOwnTrainerInAfterARestart) {
  owner_.Accept(Trainer(10, "a"));
  EXPECT_OK(owner_.Check(Trainer(11, "a")));
  owner_.Accept(Trainer(11, "a"));
  EXPECT_EQ(owner_.num_take_overs(), 0);
  EXPECT_EQ(ReasonOf(owner_.Check(Trainer(10, "a"))), "STALE_INCARNATION");
}

TEST_F(RolloutOwnerTest, LetsAnotherRunInOnceTheOwnerIsSilentForItsHold) {
  owner_.Accept(Trainer(10, "a"));
  now_ += absl::Seconds(29);
  owner_.Hear(10);
  now_ += absl::Seconds(29);
  EXPECT_EQ(ReasonOf(owner_.Check(Trainer(11, "b"))), "FOREIGN_TRAINER");
  owner_.Hear(9);  // not the owner
  owner_.Hear(0);  // nobody
  now_ += absl::Seconds(1);

  EXPECT_OK(owner_.Check(Trainer(11, "b")));
  owner_.Accept(Trainer(11, "b"));
  EXPECT_EQ(owner_.num_take_overs(), 1);
  ASSERT_TRUE(owner_.owner().has_value());
  EXPECT_EQ(owner_.owner()->run_id(), "b");
}

TEST_F(RolloutOwnerTest, LetsAnotherRunInOnceTheOwnersRunHasEnded) {
  owner_.Accept(Trainer(10, "a"));
  // Words of an earlier owner, and of one that was fenced off.
  owner_.Release(9, "a");
  owner_.Release(10, "b");
  EXPECT_EQ(ReasonOf(owner_.Check(Trainer(11, "b"))), "FOREIGN_TRAINER");

  owner_.Release(10, "a");

  EXPECT_OK(owner_.Check(Trainer(11, "b")));
  // A succession is no take-over.
  owner_.Accept(Trainer(11, "b"));
  EXPECT_EQ(owner_.num_take_overs(), 0);
}

TEST_F(RolloutOwnerTest, AFurtherUpdateOfARunThatSaidItHadEndedHoldsTheRolloutAgain) {
  owner_.Accept(Trainer(10, "a"));
  owner_.Release(10, "a");
  owner_.Accept(Trainer(10, "a"));
  EXPECT_EQ(ReasonOf(owner_.Check(Trainer(11, "b"))), "FOREIGN_TRAINER");
}

TEST_F(RolloutOwnerTest, LetsATrainerInThatIsToldToTakeOver) {
  owner_.Accept(Trainer(10, "a"));
  common::v1::WeightOwner claim = Trainer(11, "b");
  claim.set_take_over(true);
  EXPECT_OK(owner_.Check(claim));
  owner_.Accept(claim);
  EXPECT_EQ(owner_.num_take_overs(), 1);
  EXPECT_FALSE(owner_.owner()->take_over());
  // The former owner hears who has it now.
  EXPECT_THAT(owner_.Check(Trainer(10, "a")),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("belongs to run b")));
}

TEST_F(RolloutOwnerTest, ATrainerThatIsDrivenForNoRunHoldsNothingAndTakesNothing) {
  owner_.Accept(Trainer(10, "", absl::ZeroDuration()));
  EXPECT_OK(owner_.Check(Trainer(11, "b")));
  owner_.Accept(Trainer(11, "b"));
  EXPECT_EQ(ReasonOf(owner_.Check(Trainer(12, "", absl::ZeroDuration()))), "FOREIGN_TRAINER");
}

TEST_F(RolloutOwnerTest, RefusesAClaimOutOfRange) {
  EXPECT_THAT(owner_.Check(Trainer(int64_t{1} << 53, "a")),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("owner.incarnation")));
  EXPECT_THAT(owner_.Check(Trainer(1, "a", absl::Hours(25))),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("owner.hold")));
}

}  // namespace
}  // namespace tandem::rollout
