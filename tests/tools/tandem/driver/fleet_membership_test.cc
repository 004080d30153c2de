#include "tools/tandem/driver/fleet_membership.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tandem::driver {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class FleetMembershipTest : public ::testing::Test {
 protected:
  static rollout::v1::GetServerInfoResponse Info(int64_t version,
                                                 const std::string& instance = "one") {
    rollout::v1::GetServerInfoResponse info;
    info.set_state(version < 0 ? rollout::v1::ROLLOUT_STATE_STALE
                               : rollout::v1::ROLLOUT_STATE_SERVING);
    info.set_policy_version(version);
    info.set_instance_id(instance);
    return info;
  }

  // Time goes on, and every replica whose turn it is answers so.
  void Answer(const rollout::v1::GetServerInfoResponse& info) {
    now_ += absl::Seconds(1);
    for (const auto& poll : fleet_.DuePolls(now_)) fleet_.OnAnswer(poll, info, now_);
  }
  void Silence() {
    now_ += absl::Seconds(1);
    for (const auto& poll : fleet_.DuePolls(now_)) {
      fleet_.OnSilence(poll, absl::UnavailableError("refused"), now_);
    }
  }
  ReplicaState State(const std::string& id = "r") { return fleet_.Find(id)->state; }
  void Publish(int64_t version) {
    fleet_.BeginPublish(false);
    fleet_.EndPublish(version, {"r"}, now_);
  }

  FleetMembership fleet_{{}};
  absl::Time now_ = absl::UnixEpoch();
};

TEST_F(FleetMembershipTest, TheVersionOfAnotherTrainerIsNotTheOneThatIsMeant) {
  fleet_.SetTrainer(7);
  fleet_.SetMembers({{"r", "h:1"}}, now_);
  rollout::v1::GetServerInfoResponse own = Info(4);
  own.set_incarnation(7);
  Answer(own);
  Publish(4);
  Answer(own);
  EXPECT_EQ(State(), ReplicaState::kServing);
  rollout::v1::GetServerInfoResponse foreign = Info(4);
  foreign.set_incarnation(8);

  Answer(foreign);

  EXPECT_EQ(State(), ReplicaState::kStale);
  EXPECT_FALSE(fleet_.Find("r")->takes_requests());
  EXPECT_THAT(fleet_.TakeNotes(),
              ::testing::Contains(::testing::HasSubstr("of another trainer, incarnation 8")));
}

TEST_F(FleetMembershipTest, AReplicaJoinsIsStaleAndServesOnceItHasTheWeights) {
  fleet_.SetMembers({{"r", "h:1"}}, now_);
  EXPECT_EQ(State(), ReplicaState::kJoining);
  EXPECT_TRUE(fleet_.BeginPublish(/*with_joining=*/false).empty());
  fleet_.AbandonPublish(now_);
  Answer(Info(-1));
  EXPECT_EQ(State(), ReplicaState::kStale);
  EXPECT_FALSE(fleet_.Find("r")->takes_requests());
  ASSERT_EQ(fleet_.BeginPublish(false).size(), 1u);
  fleet_.EndPublish(4, {"r"}, now_);
  EXPECT_EQ(State(), ReplicaState::kServing);
  EXPECT_TRUE(fleet_.Find("r")->takes_requests());
  EXPECT_EQ(fleet_.TakeChanges().joined, 1);
  EXPECT_THAT(fleet_.TakeNotes(), IsEmpty());  // it was there at the start
}

TEST_F(FleetMembershipTest, WhileAVersionIsPublishedTheOldOneServes) {
  fleet_.SetMembers({{"r", "h:1"}}, now_);
  Answer(Info(-1));
  Publish(4);
  fleet_.BeginPublish(false);
  EXPECT_EQ(State(), ReplicaState::kUpdating);
  EXPECT_TRUE(fleet_.Find("r")->takes_requests());
  Answer(Info(4));
  EXPECT_EQ(State(), ReplicaState::kUpdating);
  fleet_.EndPublish(5, {}, now_);
  EXPECT_EQ(State(), ReplicaState::kStale);
  EXPECT_EQ(fleet_.version(), 5);
}

TEST_F(FleetMembershipTest, AnAnswerFromBeforeAnUpdateDoesNotCount) {
  fleet_.SetMembers({{"r", "h:1"}}, now_);
  Answer(Info(-1));
  Publish(4);
  now_ += absl::Seconds(1);
  const auto polls = fleet_.DuePolls(now_);
  ASSERT_EQ(polls.size(), 1u);
  Publish(5);
  fleet_.OnAnswer(polls[0], Info(4), now_);
  EXPECT_EQ(State(), ReplicaState::kServing);
}

TEST_F(FleetMembershipTest, OneThatDoesNotAnswerIsLostAndLookedForEverLessOften) {
  fleet_.SetMembers({{"r", "h:1"}}, now_);
  Answer(Info(-1));
  Publish(4);
  Silence();
  Silence();
  EXPECT_EQ(State(), ReplicaState::kServing);
  Silence();
  EXPECT_EQ(State(), ReplicaState::kLost);
  EXPECT_THAT(fleet_.TakeNotes(), Contains(HasSubstr("r at h:1 is LOST: refused")));
  EXPECT_EQ(fleet_.TakeChanges().left, 1);
  EXPECT_TRUE(fleet_.BeginPublish(false).empty());
  fleet_.EndPublish(5, {}, now_);

  absl::Duration longest;
  for (int i = 0; i < 8; ++i) {
    const absl::Time next = fleet_.NextPoll();
    longest = std::max(longest, next - now_);
    now_ = next;
    for (const auto& poll : fleet_.DuePolls(now_)) {
      fleet_.OnSilence(poll, absl::UnavailableError("refused"), now_);
    }
  }
  EXPECT_EQ(longest, absl::Seconds(8));

  // The same process again, without the version that was published meanwhile.
  now_ = fleet_.NextPoll();
  for (const auto& poll : fleet_.DuePolls(now_)) fleet_.OnAnswer(poll, Info(4), now_);
  EXPECT_EQ(State(), ReplicaState::kStale);
  Publish(5);
  EXPECT_EQ(State(), ReplicaState::kServing);
  EXPECT_THAT(fleet_.TakeNotes(), Contains(HasSubstr("is SERVING: version 5")));
}

TEST_F(FleetMembershipTest, OneThatAnswersAgainWithTheVersionServesAtOnce) {
  fleet_.SetMembers({{"r", "h:1"}}, now_);
  Answer(Info(-1));
  Publish(4);
  for (int i = 0; i < 3; ++i) Silence();
  ASSERT_EQ(State(), ReplicaState::kLost);
  Answer(Info(4));
  EXPECT_EQ(State(), ReplicaState::kServing);
}

TEST_F(FleetMembershipTest, ARestartedProcessIsStaleWhateverItClaims) {
  fleet_.SetMembers({{"r", "h:1"}}, now_);
  Answer(Info(-1));
  Publish(4);
  Answer(Info(4, "another"));
  EXPECT_EQ(State(), ReplicaState::kStale);
  EXPECT_THAT(fleet_.TakeNotes(), Contains(HasSubstr("r has restarted")));
}

TEST_F(FleetMembershipTest, AVersionThatGoesBackWithinOneProcessIsNotServed) {
  fleet_.SetMembers({{"r", "h:1"}}, now_);
  Answer(Info(-1));
  Publish(4);
  Answer(Info(4));
  Answer(Info(3));
  EXPECT_EQ(State(), ReplicaState::kStale);
  EXPECT_THAT(fleet_.TakeNotes(), Contains(HasSubstr("went back from version 4 to 3")));
}

TEST_F(FleetMembershipTest, AfterAFailedRequestTheNextAnswerDecides) {
  fleet_.SetMembers({{"r", "h:1"}}, now_);
  Answer(Info(-1));
  Publish(4);
  Answer(Info(4));
  fleet_.Suspect("r", absl::UnavailableError("reset"), now_);
  EXPECT_FALSE(fleet_.Find("r")->takes_requests());
  EXPECT_EQ(fleet_.NextPoll(), now_);  // at once
  Answer(Info(4));
  EXPECT_TRUE(fleet_.Find("r")->takes_requests());
  fleet_.Suspect("r", absl::UnavailableError("reset"), now_);
  Silence();
  EXPECT_EQ(State(), ReplicaState::kLost);
}

TEST_F(FleetMembershipTest, AfterAFailedUpdateNobodyCountsBeforeItHasAnswered) {
  fleet_.SetMembers({{"r", "h:1"}}, now_);
  Answer(Info(-1));
  Publish(4);
  ASSERT_EQ(fleet_.BeginPublish(false).size(), 1u);
  fleet_.AbandonPublish(now_);
  EXPECT_FALSE(fleet_.AnyIsThere());
  EXPECT_TRUE(fleet_.BeginPublish(false).empty());
  fleet_.AbandonPublish(now_);
  Answer(Info(4));
  EXPECT_TRUE(fleet_.AnyIsThere());
  EXPECT_EQ(State(), ReplicaState::kServing);
}

TEST_F(FleetMembershipTest, OneThatIsTakenOutOfTheListDrainsAndIsForgotten) {
  fleet_.SetMembers({{"r", "h:1"}, {"s", "h:2"}}, now_);
  Answer(Info(-1));
  fleet_.BeginPublish(false);
  fleet_.EndPublish(4, {"r", "s"}, now_);
  fleet_.SetMembers({{"s", "h:2"}}, now_);
  EXPECT_EQ(State(), ReplicaState::kDraining);
  EXPECT_FALSE(fleet_.Find("r")->takes_requests());
  Answer(Info(4));
  EXPECT_EQ(State(), ReplicaState::kDraining);
  fleet_.Forget("r");
  EXPECT_EQ(fleet_.Find("r"), nullptr);
  fleet_.SetMembers({{"s", "h:2"}, {"r", "h:1"}}, now_);
  EXPECT_EQ(State(), ReplicaState::kJoining);
  EXPECT_EQ(State("s"), ReplicaState::kServing);
}

TEST_F(FleetMembershipTest, ADrainingProcessGetsNothingMore) {
  fleet_.SetMembers({{"r", "h:1"}}, now_);
  Answer(Info(-1));
  Publish(4);
  auto info = Info(4);
  info.set_state(rollout::v1::ROLLOUT_STATE_DRAINING);
  Answer(info);
  EXPECT_EQ(State(), ReplicaState::kDraining);
  EXPECT_TRUE(fleet_.BeginPublish(false).empty());
}

TEST_F(FleetMembershipTest, AnIdAtAnotherAddressIsAnotherReplica) {
  fleet_.SetMembers({{"r", "h:1"}}, now_);
  Answer(Info(-1));
  Publish(4);
  fleet_.SetMembers({{"r", "h:2"}}, now_);
  EXPECT_EQ(State(), ReplicaState::kJoining);
  EXPECT_EQ(fleet_.TakeChanges().left, 1);
  Answer(Info(-1, "another"));
  Publish(4);
  EXPECT_THAT(fleet_.TakeNotes(), Contains(HasSubstr("r at h:2 is SERVING")));
}

}  // namespace
}  // namespace tandem::driver
