#include "tools/tandem/driver/fleet_membership.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

namespace tandem::driver {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

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
    fleet_.BeginPublish(false, now_);
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
  EXPECT_TRUE(fleet_.BeginPublish(/*with_joining=*/false, now_).empty());
  fleet_.AbandonPublish(now_);
  Answer(Info(-1));
  EXPECT_EQ(State(), ReplicaState::kStale);
  EXPECT_FALSE(fleet_.Find("r")->takes_requests());
  ASSERT_EQ(fleet_.BeginPublish(false, now_).size(), 1u);
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
  fleet_.BeginPublish(false, now_);
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
  EXPECT_TRUE(fleet_.BeginPublish(false, now_).empty());
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

TEST_F(FleetMembershipTest, AReplicaOfAnotherBuildIsNotedOncePerProcess) {
  fleet_.SetMembers({{"r", "h:1"}}, now_);
  rollout::v1::GetServerInfoResponse other = Info(-1);
  other.set_build_version("0.0.1");

  Answer(other);

  EXPECT_THAT(fleet_.TakeNotes(), Contains(HasSubstr("r is version 0.0.1, but this program is")));
  Answer(other);
  EXPECT_THAT(fleet_.TakeNotes(), Not(Contains(HasSubstr("0.0.1"))));
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
  EXPECT_THAT(fleet_.TakeNotes(), Contains(HasSubstr("went back from 4 to 3")));
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
  ASSERT_EQ(fleet_.BeginPublish(false, now_).size(), 1u);
  fleet_.AbandonPublish(now_);
  EXPECT_FALSE(fleet_.AnyIsReachable());
  EXPECT_TRUE(fleet_.BeginPublish(false, now_).empty());
  fleet_.AbandonPublish(now_);
  Answer(Info(4));
  EXPECT_TRUE(fleet_.AnyIsReachable());
  EXPECT_EQ(State(), ReplicaState::kServing);
}

TEST_F(FleetMembershipTest, OneThatIsTakenOutOfTheListDrainsAndIsForgotten) {
  fleet_.SetMembers({{"r", "h:1"}, {"s", "h:2"}}, now_);
  Answer(Info(-1));
  fleet_.BeginPublish(false, now_);
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
  EXPECT_TRUE(fleet_.BeginPublish(false, now_).empty());
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

// Two replicas of which one answers and takes no weights.
class BackOffTest : public FleetMembershipTest {
 protected:
  void SetUp() override {
    fleet_.SetMembers({{"bad", "h:1"}, {"good", "h:2"}}, now_);
    Answer(Info(-1));
  }

  // Whom the update was for; it takes `cost`.
  std::set<std::string> Update(const std::set<std::string>& committed,
                               absl::Duration cost = absl::Seconds(1)) {
    ++version_;
    std::set<std::string> out;
    for (const auto& replica : fleet_.BeginPublish(false, now_)) out.insert(replica.id);
    now_ += cost;
    std::set<std::string> reached;
    for (const std::string& id : committed) {
      if (out.contains(id)) reached.insert(id);
    }
    fleet_.EndPublish(version_, reached, now_);
    now_ += absl::Milliseconds(500);
    for (const auto& poll : fleet_.DuePolls(now_)) {
      fleet_.OnAnswer(poll, Info(reached.contains(poll.address.id) ? version_ : -1), now_);
    }
    return out;
  }

  const std::set<std::string> both_ = {"bad", "good"};
  const std::set<std::string> one_ = {"good"};
  int64_t version_ = 0;
};

TEST_F(BackOffTest, OneThatTakesNoWeightsIsLeftOutEverLonger) {
  EXPECT_EQ(Update(one_), both_);
  EXPECT_EQ(fleet_.CountBackingOff(now_), 0);
  EXPECT_TRUE(fleet_.AnyWantsWeights(now_));
  EXPECT_EQ(Update(one_), both_);
  EXPECT_EQ(fleet_.CountBackingOff(now_), 1);
  EXPECT_FALSE(fleet_.AnyWantsWeights(now_));
  EXPECT_THAT(fleet_.TakeNotes(),
              Contains(HasSubstr("bad at h:1 responds, but does not accept weights")));

  std::vector<absl::Duration> pauses;
  for (int i = 0; i < 9; ++i) {
    const absl::Time start = now_;
    while (Update(one_) == one_) {
    }
    pauses.push_back(now_ - start);
  }
  for (size_t i = 1; i < pauses.size(); ++i) EXPECT_GE(pauses[i], pauses[i - 1]);
  EXPECT_GT(pauses.back(), absl::Minutes(4));
  EXPECT_LT(pauses.back(), absl::Minutes(6));
}

TEST_F(BackOffTest, ThePauseFollowsWhatTheUpdateCosts) {
  Update(one_, absl::Minutes(2));
  Update(one_, absl::Minutes(2));
  const absl::Time start = now_;
  while (Update(one_, absl::Seconds(10)) == one_) {
  }
  EXPECT_GT(now_ - start, absl::Seconds(110));
}

TEST_F(BackOffTest, OneThatTakesTheWeightsAgainIsBack) {
  Update(one_);
  Update(one_);
  ASSERT_EQ(fleet_.CountBackingOff(now_), 1);
  fleet_.TakeNotes();
  while (Update(both_) == one_) {
  }
  EXPECT_EQ(fleet_.CountBackingOff(now_), 0);
  EXPECT_EQ(State("bad"), ReplicaState::kServing);
  EXPECT_THAT(fleet_.TakeNotes(), Contains(HasSubstr("bad at h:1 accepts weights again")));
  EXPECT_EQ(Update(both_), both_);
}

TEST_F(BackOffTest, OneThatFlapsIsLeftOutInTheEnd) {
  int left_out = 0;
  for (int i = 0; i < 12; ++i) {
    left_out += Update(i % 2 == 0 ? one_ : both_) == one_ ? 1 : 0;
  }
  EXPECT_GT(left_out, 0);
}

TEST_F(BackOffTest, ANewProcessAndALastResortAreTriedAtOnce) {
  Update(one_);
  Update(one_);
  ASSERT_EQ(fleet_.CountBackingOff(now_), 1);
  // Nobody else is left.
  fleet_.SetMembers({{"bad", "h:1"}}, now_);
  EXPECT_EQ(fleet_.BeginPublish(false, now_).size(), 1u);
  fleet_.AbandonPublish(now_);
  fleet_.SetMembers({{"bad", "h:1"}, {"good", "h:2"}}, now_);
  Answer(Info(-1, "another"));
  EXPECT_EQ(fleet_.CountBackingOff(now_), 0);
}

}  // namespace
}  // namespace tandem::driver
