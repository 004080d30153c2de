#include "services/trainer/service/driver_lease.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "common/rpc/proto_duration.h"
#include "common/rpc/status_conversion.h"
#include "services/trainer/service/request_ids.h"
#include "tests/support/error_reason.h"
#include "tests/support/status_matchers.h"

namespace tandem::trainer {
namespace {

using ::tandem::testing::IsOk;
using ::tandem::testing::ReasonOf;
using ::tandem::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

v1::AcquireLeaseRequest From(const std::string& run, const std::string& driver, int64_t pid = 12) {
  v1::AcquireLeaseRequest request;
  request.set_driver_id(driver);
  request.set_run_id(run);
  request.set_host("host-3");
  request.set_pid(pid);
  request.set_run_dir("/runs/" + run);
  return request;
}

class DriverLeaseTest : public ::testing::Test {
 protected:
  absl::Duration now_ = absl::Hours(5);
  DriverLease lease_{
      {.first_epoch = 70, .duration = absl::Seconds(30), .clock = [this] { return now_; }}};
};

TEST_F(DriverLeaseTest, RefusesASecondDriverAndSaysWhoTheFirstIs) {
  ASSERT_OK(lease_.Acquire(From("a", "first", 812)).status());
  now_ += absl::Seconds(7);

  const absl::Status refused = lease_.Acquire(From("b", "second")).status();

  EXPECT_THAT(refused,
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("run a of process 812 on host-3"),
                             HasSubstr("run folder /runs/a"), HasSubstr("held for 7s"),
                             HasSubstr("last heartbeat 7s ago"), HasSubstr("expires in 23s"))));
  EXPECT_EQ(ReasonOf(refused), "LEASE_HELD");
  const auto holder = rpc::GetDetail<v1::LeaseHolder>(refused);
  ASSERT_TRUE(holder.has_value());
  EXPECT_EQ(holder->run_id(), "a");
  EXPECT_EQ(rpc::FromProto(holder->expires_in()), absl::Seconds(23));
  EXPECT_EQ(lease_.num_refused(), 1);
}

TEST_F(DriverLeaseTest, ARepeatByTheHolderAnswersTheSameLease) {
  ASSERT_OK_AND_ASSIGN(const auto first, lease_.Acquire(From("a", "one")));
  now_ += absl::Seconds(20);
  ASSERT_OK_AND_ASSIGN(const auto again, lease_.Acquire(From("a", "one")));
  EXPECT_EQ(first.lease().epoch(), 70);
  EXPECT_EQ(again.lease().epoch(), 70);
  now_ += absl::Seconds(20);  // it was a heartbeat
  EXPECT_OK(lease_.CheckWrite(first.lease()));
}

TEST_F(DriverLeaseTest, AnotherProcessOfTheRunTakesOverOnlyOnceTheLeaseHasExpired) {
  ASSERT_OK_AND_ASSIGN(const auto dead, lease_.Acquire(From("a", "one")));
  now_ += absl::Seconds(30);
  EXPECT_THAT(lease_.Acquire(From("a", "two")),
              StatusIs(absl::StatusCode::kFailedPrecondition, ::testing::_));
  now_ += absl::Milliseconds(1);

  ASSERT_OK_AND_ASSIGN(const auto taken, lease_.Acquire(From("a", "two")));

  EXPECT_GT(taken.lease().epoch(), dead.lease().epoch());
  EXPECT_EQ(lease_.num_take_overs(), 1);
  const absl::Status fenced = lease_.CheckWrite(dead.lease());
  EXPECT_THAT(fenced,
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("epoch 70, has ended"), HasSubstr("under epoch 71"))));
  EXPECT_EQ(ReasonOf(fenced), "LEASE_LOST");
  EXPECT_EQ(ReasonOf(lease_.Renew(dead.lease())), "LEASE_LOST");
  EXPECT_OK(lease_.CheckWrite(taken.lease()));
}

TEST_F(DriverLeaseTest, HeartbeatsAndCallsKeepItAlive) {
  ASSERT_OK_AND_ASSIGN(const auto granted, lease_.Acquire(From("a", "one")));
  for (int i = 0; i < 10; ++i) {
    now_ += absl::Seconds(29);
    EXPECT_OK(i % 2 == 0 ? lease_.Renew(granted.lease()) : lease_.CheckWrite(granted.lease()));
  }
}

TEST_F(DriverLeaseTest, ADriverThatWasStoppedForLongerThanTheLeaseIsFenced) {
  ASSERT_OK_AND_ASSIGN(const auto granted, lease_.Acquire(From("a", "one")));
  now_ += absl::Minutes(10);
  EXPECT_EQ(lease_.holder(), std::nullopt);

  const absl::Status fenced = lease_.CheckWrite(granted.lease());

  EXPECT_THAT(fenced,
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("this driver was silent for 10m"),
                             HasSubstr("30s (trainer.driver_lease_s)"), HasSubstr("--resume"))));
  EXPECT_EQ(ReasonOf(fenced), "LEASE_LOST");
}

TEST_F(DriverLeaseTest, CallsWithoutALeaseAreTakenOnlyWhileNobodyHoldsIt) {
  EXPECT_OK(lease_.CheckWrite({}));
  ASSERT_OK_AND_ASSIGN(const auto granted, lease_.Acquire(From("a", "one")));
  EXPECT_EQ(ReasonOf(lease_.CheckWrite({})), "LEASE_HELD");
  lease_.Release(granted.lease());
  EXPECT_OK(lease_.CheckWrite({}));
  EXPECT_EQ(ReasonOf(lease_.CheckWrite(granted.lease())), "LEASE_LOST");
}

TEST_F(DriverLeaseTest, AReleaseOfAnOlderLeaseEndsNothing) {
  ASSERT_OK_AND_ASSIGN(const auto old, lease_.Acquire(From("a", "one")));
  now_ += absl::Minutes(1);
  ASSERT_OK_AND_ASSIGN(const auto current, lease_.Acquire(From("b", "two")));
  lease_.Release(old.lease());
  EXPECT_OK(lease_.CheckWrite(current.lease()));
}

TEST_F(DriverLeaseTest, AnOperatorMayTakeALiveLease) {
  ASSERT_OK_AND_ASSIGN(const auto held, lease_.Acquire(From("a", "one")));
  v1::AcquireLeaseRequest request = From("b", "two");
  request.set_take_over(true);
  ASSERT_OK_AND_ASSIGN(const auto taken, lease_.Acquire(request));
  EXPECT_EQ(ReasonOf(lease_.CheckWrite(held.lease())), "LEASE_LOST");
  EXPECT_OK(lease_.CheckWrite(taken.lease()));
}

TEST_F(DriverLeaseTest, AForgedEpochOfAnotherRunIsRefused) {
  ASSERT_OK_AND_ASSIGN(auto granted, lease_.Acquire(From("a", "one")));
  granted.mutable_lease()->set_run_id("b");
  EXPECT_EQ(ReasonOf(lease_.CheckWrite(granted.lease())), "LEASE_LOST");
}

TEST_F(DriverLeaseTest, RefusesRequestsThatAreNotComplete) {
  EXPECT_THAT(lease_.Acquire(From("", "one")),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("run_id")));
  EXPECT_THAT(lease_.Acquire(From("a", "")),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("driver_id")));
  v1::AcquireLeaseRequest request = From("a", "one");
  *request.mutable_duration() = rpc::ToProto(absl::Hours(25));
  EXPECT_THAT(lease_.Acquire(request),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("duration")));
  request.mutable_duration()->set_seconds(-1);
  EXPECT_THAT(lease_.Acquire(request),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("duration")));
}

TEST(RequestIds, KnowARepeatFromAnIdThatIsUsedAgain) {
  RequestIds ids(/*max_kept=*/2);
  EXPECT_OK(ids.Check("id", "SaveCheckpoint", "path a"));
  EXPECT_OK(ids.Check("id", "SaveCheckpoint", "path a"));
  EXPECT_THAT(
      ids.Check("id", "SaveCheckpoint", "path b"),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("found id with different contents")));
  EXPECT_THAT(ids.Check("id", "LoadCheckpoint", "path a"),
              StatusIs(absl::StatusCode::kInvalidArgument, ::testing::_));
  EXPECT_OK(ids.Check("", "SaveCheckpoint", "path a"));
  EXPECT_OK(ids.Check("", "SaveCheckpoint", "path b"));
  EXPECT_OK(ids.Check("second", "SaveCheckpoint", "x"));
  EXPECT_OK(ids.Check("third", "SaveCheckpoint", "x"));
  EXPECT_OK(ids.Check("id", "SaveCheckpoint", "path b"));  // forgotten by now
}

}  // namespace
}  // namespace tandem::trainer
