// What every cell of the matrix is held to:
//
//   - nobody waits beyond the update's deadline and kGrace;
//   - an update that fails says whose fault it is, the phase, and of a transfer the bucket or
//   tensor;
//     a fault that a deadline outlasts (2 s, lost packets) does not make it fail;
//   - every rollout serves the old or the new version as a whole, and the new one only where it
//   says
//     so; which is what the leader reports;
//   - once the fault is lifted, the next update succeeds on all;
//   - a trainer that is awake again after its successor has begun is refused.
#include "tests/fault/fault_cell.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/fault/update_fleet.h"
#include "tests/support/status_matchers.h"

namespace tandem::testing {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;

// A failed update asks who is the cause (half a second here) and takes back what was begun (two
// seconds); a group's own timers run two seconds longer than the deadline.
constexpr absl::Duration kGrace = absl::Seconds(5);
// Of things that have no deadline of their own, on a machine that does much else.
constexpr absl::Duration kSoon = absl::Seconds(20);

bool Passes(Fault fault) { return fault == Fault::kDelayed || fault == Fault::kLossy; }

class CellRun {
 public:
  explicit CellRun(const Cell& cell)
      : cell_(cell),
        timeout_(Passes(cell.fault) ? absl::Seconds(15) : absl::Seconds(3)),
        fleet_(UPDATE_ACTOR, {.transport = cell.transport, .update_timeout = timeout_}) {}

  void Run() {
    ASSERT_OK(fleet_.Start());
    ASSERT_NO_FATAL_FAILURE(UpdateAll(1));
    ASSERT_OK(fleet_.Prepare(2));
    ASSERT_NO_FATAL_FAILURE(UpdateWithFault());
    if (::testing::Test::HasFailure()) return;
    ExpectWhole(/*all=*/false);
    ASSERT_NO_FATAL_FAILURE(Lift());
    ExpectWhole(/*all=*/true);
    ASSERT_NO_FATAL_FAILURE(UpdateAll(next_version_));
    ExpectFormerTrainerIsRefused();
  }

  std::string log() const { return fleet_.log(); }

 private:
  bool Is(Role role) const { return cell_.role == role; }
  bool Is(Fault fault) const { return cell_.fault == fault; }
  bool Is(Phase phase) const { return cell_.phase == phase; }
  // The other trainer rank is done when all has been sent, which sockets may hold by the time that
  // the first of it has arrived.
  bool MayBeDone() const { return Is(Role::kOtherRank) && !Is(Phase::kIdle) && !Is(Phase::kBegin); }
  ActorProcess& victim() { return fleet_.actor(cell_.role); }

  // A whole update without a fault.
  void UpdateAll(int64_t version) {
    ASSERT_OK(fleet_.Prepare(version));
    fleet_.Publish(version);
    ASSERT_NO_FATAL_FAILURE(ExpectSuccess());
    for (int i = 0; i < 2; ++i) {
      ASSERT_OK_AND_ASSIGN(const int64_t live, fleet_.LiveVersion(i, kSoon));
      EXPECT_EQ(live, version) << "rollout " << i;
    }
  }

  // Of an update that the driver has asked for.
  void ExpectSuccess() {
    ASSERT_OK(fleet_.Result(fleet_.driver(), "answered", timeout_ + kGrace));
    EXPECT_OK(fleet_.Result(fleet_.rank(0), "published", kGrace));
    EXPECT_OK(fleet_.Result(fleet_.rank(1), "followed", kGrace));
  }

  void Inflict() {
    if (Is(Fault::kKilled)) return victim().Kill();
    if (Is(Fault::kStopped)) return victim().Signal(SIGSTOP);
    const char* name = Is(Fault::kCut) ? "cut" : Is(Fault::kDelayed) ? "delay" : "loss";
    victim().Send(absl::StrCat("fault ", name));
    ASSERT_TRUE(victim().Await("fault", kSoon).has_value());
  }

  void UpdateWithFault() {
    if (Is(Phase::kIdle)) {
      ASSERT_NO_FATAL_FAILURE(Inflict());
      start_ = absl::Now();
      fleet_.Publish(2);
    } else {
      fleet_.rollout(0).Send("hold " + Name(cell_.phase));
      ASSERT_TRUE(fleet_.rollout(0).Await("hold", kSoon).has_value());
      start_ = absl::Now();
      fleet_.Publish(2);
      ASSERT_TRUE(fleet_.rollout(0).Await("at", kSoon).has_value());
      ASSERT_NO_FATAL_FAILURE(Inflict());
      fleet_.rollout(0).Send("go");
    }
    if (Is(Role::kDriver)) return ExpectTheDriverDoesNotMatter();
    if (Passes(cell_.fault)) return ExpectSuccess();
    const absl::Status result = fleet_.Result(fleet_.driver(), "answered", timeout_ + kGrace);
    EXPECT_LT(absl::Now() - start_, timeout_ + kGrace);
    if (!MayBeDone() || !result.ok()) ExpectNamesTheCulprit(result);
    if (Is(Role::kLeader) && !Is(Fault::kStopped)) {
      EXPECT_THAT(fleet_.Result(fleet_.rank(1), "followed", timeout_ + kGrace).message(),
                  HasSubstr("rank 0"));
    }
    if (Is(Role::kRollout)) {
      EXPECT_OK(fleet_.Result(fleet_.rank(1), "followed", kGrace));
      EXPECT_NE(fleet_.Result(fleet_.rank(0), "published", kGrace), absl::OkStatus());
    }
  }

  void ExpectNamesTheCulprit(const absl::Status& result) {
    ASSERT_FALSE(result.ok());
    const std::string error(result.message());
    if (Is(Role::kLeader)) return;  // only the call itself is left to say so
    if (Is(Role::kRollout)) {
      EXPECT_THAT(error, HasSubstr("replica r0"));
      EXPECT_THAT(error, Not(HasSubstr("replica r1")));
      const std::string phase = Is(Phase::kIdle) ? "begin" : Name(cell_.phase);
      // The last bytes may still be on their way to the second rollout.
      EXPECT_THAT(error,
                  AnyOf(HasSubstr("phase " + phase),
                        HasSubstr(Is(Phase::kVerify) ? "phase transfer" : "phase " + phase)));
    } else {
      EXPECT_THAT(error, HasSubstr("rank 1"));
      EXPECT_THAT(error, HasSubstr(Is(Phase::kCommit) ? "" : "phase"));
    }
    if (Is(Phase::kTransfer)) {
      // What a rank sends may all be on its way when it goes.
      EXPECT_THAT(error, AnyOf(HasSubstr("bucket"), HasSubstr("tensor"), HasSubstr("phase end")));
    }
  }

  // The trainer brings an update that was asked for to its end, whatever becomes of who asked.
  void ExpectTheDriverDoesNotMatter() {
    if (Is(Phase::kIdle) && !Passes(cell_.fault)) {
      if (Is(Fault::kCut)) {
        EXPECT_FALSE(fleet_.Result(fleet_.driver(), "answered", timeout_ + kGrace).ok());
      }
      return;
    }
    EXPECT_OK(fleet_.Result(fleet_.rank(0), "published", timeout_ + kGrace));
    EXPECT_OK(fleet_.Result(fleet_.rank(1), "followed", kGrace));
    if (Is(Fault::kKilled) || Is(Fault::kStopped)) return;
    EXPECT_EQ(fleet_.Result(fleet_.driver(), "answered", timeout_ + kGrace).ok(),
              Passes(cell_.fault));
  }

  // Which version each rollout serves, as a whole; the victim is asked only where it can answer.
  void ExpectWhole(bool all) {
    for (int i = 0; i < 2; ++i) {
      if (!all && i == 0 && Is(Role::kRollout) && !Passes(cell_.fault)) continue;
      const auto live = fleet_.LiveVersion(i, timeout_ + kGrace);
      ASSERT_OK(live.status()) << "rollout " << i;
      const bool restarted = i == 0 && Is(Role::kRollout) && Is(Fault::kKilled);
      if (restarted) {
        EXPECT_EQ(*live, -1);
      } else if (Passes(cell_.fault)) {
        EXPECT_EQ(*live, 2) << "rollout " << i;
      } else {
        EXPECT_THAT(*live, AnyOf(1, 2)) << "rollout " << i;
        // Nobody commits before all have verified.
        if (!Is(Role::kDriver) && !Is(Phase::kCommit) && !Is(Phase::kVerify) && !MayBeDone()) {
          EXPECT_EQ(*live, 1) << "rollout " << i;
        }
      }
    }
  }

  void Lift() {
    if (Is(Role::kLeader) || Is(Role::kOtherRank)) {
      if (Passes(cell_.fault)) {
        victim().Send("fault none");
      } else {
        // One that stands still is left standing: its successor begins without it.
        former_leader_ = fleet_.leader_address();
        ASSERT_OK(fleet_.RestartTrainer(Is(Fault::kStopped) ? &victim() : nullptr));
      }
    } else if (Is(Fault::kKilled)) {
      ASSERT_OK(Is(Role::kRollout) ? fleet_.RestartRollout(0) : fleet_.RestartDriver());
    } else if (Is(Fault::kStopped)) {
      victim().Signal(SIGCONT);
    } else {
      victim().Send("fault none");
    }
    if (!Is(Role::kDriver) || Passes(cell_.fault)) return;
    // One that was stopped still gets its answer; else it is asked again, which is harmless.
    if (Is(Fault::kStopped) && !Is(Phase::kIdle)) {
      ASSERT_OK(fleet_.Result(fleet_.driver(), "answered", timeout_ + kGrace));
      return;
    }
    if (!Is(Phase::kIdle)) {
      ASSERT_OK(fleet_.Prepare(2));
    }
    if (!Is(Fault::kStopped)) fleet_.Publish(2);
    ExpectSuccess();
  }

  void ExpectFormerTrainerIsRefused() {
    if (!Is(Role::kLeader) || !Is(Fault::kStopped)) return;
    ActorProcess& former = *fleet_.former()[0];
    former.Signal(SIGCONT);
    fleet_.Result(former, "published", timeout_ + kGrace).IgnoreError();
    fleet_.PublishOn(former_leader_, next_version_ + 1);
    EXPECT_THAT(fleet_.Result(fleet_.driver(), "answered", timeout_ + 2 * kGrace).message(),
                HasSubstr("incarnation 1 is over"));
    for (int i = 0; i < 2; ++i) {
      ASSERT_OK_AND_ASSIGN(const int64_t live, fleet_.LiveVersion(i, kSoon));
      EXPECT_EQ(live, next_version_) << "rollout " << i;
    }
  }

  const Cell cell_;
  const absl::Duration timeout_;
  UpdateFleet fleet_;
  absl::Time start_;
  int64_t next_version_ = 3;
  std::string former_leader_;
};

}  // namespace

void RunCell(const Cell& cell) {
  CellRun run(cell);
  run.Run();
  if (::testing::Test::HasFailure()) ADD_FAILURE() << "what the processes said:\n" << run.log();
}

}  // namespace tandem::testing
