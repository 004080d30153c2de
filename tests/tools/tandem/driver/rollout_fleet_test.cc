// The fleet over fake rollouts: what one of them had sampled is kept when another goes on with it.
#include "tools/tandem/driver/rollout_fleet.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "common/rpc/server.h"
#include "tests/fakes/fake_generator.h"
#include "tests/support/run_processes.h"
#include "tests/support/status_matchers.h"

namespace tandem::driver {
namespace {

using ::tandem::testing::Eventually;
using ::tandem::testing::FakeGenerator;
using ::tandem::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int64_t kTokens = 8;
constexpr int kPatience = 60;  // seconds; a test that reaches it has failed

class RolloutFleetTest : public ::testing::Test {
 protected:
  FakeGenerator& Add(int64_t version = 0) {
    generators_.push_back(std::make_unique<FakeGenerator>(version));
    EXPECT_OK(generators_.back()->status);
    replicas_.push_back(
        {"rollout-" + std::to_string(replicas_.size()), generators_.back()->address()});
    return *generators_.back();
  }

  void Start(bool replicas_may_change, absl::Duration request_timeout = absl::Seconds(kPatience)) {
    RolloutFleet::Options options;
    options.request_timeout = request_timeout;
    options.replicas_may_change = replicas_may_change;
    options.members = [this] {
      absl::MutexLock lock(&mu_);
      return replicas_;
    };
    options.membership.poll_interval = absl::Milliseconds(20);
    fleet_ = std::make_unique<RolloutFleet>(replicas_, std::move(options));
    if (!replicas_may_change) return;
    // Those that have weights serve once they have answered.
    double serving = 0;
    for (const auto& generator : generators_) serving += generator->version >= 0 ? 1 : 0;
    ASSERT_TRUE(Eventually([&] { return fleet_->TakeMetrics().at("fleet/serving") == serving; },
                           kPatience));
  }

  static RolloutFleet::GenerateOptions Options() {
    RolloutFleet::GenerateOptions options;
    options.sampling.set_n(3);
    options.sampling.set_max_tokens(kTokens);
    options.sampling.set_seed(5);
    options.sampling.set_processed_logprobs(true);
    return options;
  }

  static std::vector<Prompt> Prompts(int count) {
    std::vector<Prompt> prompts(count);
    for (Prompt& prompt : prompts) prompt.token_ids = {1, 2, 3};
    return prompts;
  }

  // Everything that a retry must not change.
  static void ExpectWhole(const Group& group, uint64_t place) {
    const uint64_t seed = uint64_t{5} * 0x9E3779B97F4A7C15ULL + place + 1;
    ASSERT_EQ(group.completions.size(), 3u);
    for (int32_t i = 0; i < 3; ++i) {
      const Completion& completion = group.completions[i];
      ASSERT_EQ(completion.token_ids.size(), static_cast<size_t>(kTokens));
      for (int64_t t = 0; t < kTokens; ++t) {
        EXPECT_EQ(completion.token_ids[t], FakeGenerator::Token(seed, i, t));
        EXPECT_EQ(completion.logprobs[t], -static_cast<float>(t));
        EXPECT_EQ(completion.processed_logprobs[t], -static_cast<float>(t));
      }
      EXPECT_EQ(completion.text, "xxxxxxxx");
      EXPECT_EQ(completion.finish_reason, common::v1::FINISH_REASON_LENGTH);
      int64_t end = 0;
      for (const auto& span : completion.version_spans) {
        EXPECT_EQ(span.begin(), end);
        end = span.end();
      }
      EXPECT_EQ(end, kTokens);
    }
  }

  absl::Mutex mu_;
  std::vector<std::unique_ptr<FakeGenerator>> generators_;
  std::vector<RolloutFleet::Replica> replicas_;
  std::unique_ptr<RolloutFleet> fleet_;  // ends before what it speaks to
};

TEST_F(RolloutFleetTest, WhatALostReplicaHadSampledIsKept) {
  FakeGenerator& lost = Add(/*version=*/4);
  FakeGenerator& other = Add(/*version=*/4);
  lost.end = FakeGenerator::End::kUnavailable;
  Start(/*replicas_may_change=*/false);
  ASSERT_OK_AND_ASSIGN(const std::vector<Group> groups, fleet_->Generate(Prompts(4), Options()));
  for (uint64_t i = 0; i < 4; ++i) ExpectWhole(groups[i], i);
  const std::map<std::string, double> metrics = fleet_->TakeMetrics();
  EXPECT_GT(metrics.at("fleet/retried_requests"), 0);
  EXPECT_EQ(metrics.at("fleet/kept_tokens"), 9 * metrics.at("fleet/retried_requests"));
  int begun = 0;
  for (const auto& request : other.requests()) begun += request.begun_size();
  EXPECT_EQ(begun, 3 * metrics.at("fleet/retried_requests"));
}

TEST_F(RolloutFleetTest, SpansSayWhichVersionSampledEachPart) {
  Add(/*version=*/3).end = FakeGenerator::End::kUnavailable;
  FakeGenerator& other = Add(/*version=*/4);
  other.end = FakeGenerator::End::kUnavailable;
  Start(false);
  auto run =
      std::async(std::launch::async, [&] { return fleet_->Generate(Prompts(1), Options()); });
  // The least loaded comes first, then the other one; nobody is left after that.
  EXPECT_THAT(run.get().status(),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("it is gone")));
  other.end = FakeGenerator::End::kWhole;
  ASSERT_OK_AND_ASSIGN(const std::vector<Group> groups, fleet_->Generate(Prompts(1), Options()));
  ExpectWhole(groups[0], 0);
  for (const Completion& completion : groups[0].completions) {
    ASSERT_EQ(completion.version_spans.size(), 2u);
    EXPECT_EQ(completion.version_spans[0].policy_version(), 3);
    EXPECT_EQ(completion.version_spans[0].end(), 3);
    EXPECT_EQ(completion.version_spans[1].policy_version(), 4);
  }
}

TEST_F(RolloutFleetTest, TokensOfAnotherTrainerAreDroppedAndTheRunIsToldWhoseTheyAre) {
  FakeGenerator& only = Add(/*version=*/4);
  only.incarnation = 7;
  only.foreign_from = 5;  // another trainer commits the same version meanwhile
  Start(/*replicas_may_change=*/false);
  fleet_->SetTrainer(7);

  EXPECT_THAT(fleet_->Generate(Prompts(1), Options()),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("rollout-0"), HasSubstr("trainer incarnation 8"),
                             HasSubstr("incarnation 7"))));
  EXPECT_EQ(fleet_->TakeMetrics().at("fleet/foreign_answers"), 1);
  EXPECT_EQ(only.requests()[0].incarnation(), 7);
}

TEST_F(RolloutFleetTest, AFleetThatMayChangeMakesTheGroupWholeWithTheTrainersOwnReplicas) {
  FakeGenerator& taken = Add(/*version=*/4);
  FakeGenerator& own = Add(/*version=*/4);
  taken.incarnation = own.incarnation = 7;
  taken.foreign_from = 5;
  Start(/*replicas_may_change=*/true);
  fleet_->SetTrainer(7);

  ASSERT_OK_AND_ASSIGN(const std::vector<Group> groups, fleet_->Generate(Prompts(4), Options()));

  for (uint64_t i = 0; i < 4; ++i) {
    ExpectWhole(groups[i], i);
    for (const Completion& completion : groups[i].completions) {
      for (const auto& span : completion.version_spans) EXPECT_EQ(span.incarnation(), 7);
    }
  }
  EXPECT_GT(fleet_->TakeMetrics().at("fleet/foreign_answers"), 0);
  // A poll of before SetTrainer() may have been the last one.
  EXPECT_TRUE(Eventually([&] { return own.heard_of == 7; }, kPatience));
}

TEST_F(RolloutFleetTest, HeartbeatsReachEveryReplica) {
  FakeGenerator& one = Add();
  FakeGenerator& two = Add();
  Start(/*replicas_may_change=*/false);
  fleet_->SetTrainer(7);
  fleet_->SendHeartbeats();
  EXPECT_TRUE(Eventually([&] { return one.heard_of == 7 && two.heard_of == 7; }, kPatience));
}

// Its GetServerInfo lasts until the call is cancelled.
class SilentRollout final : public rollout::v1::RolloutService::Service {
 public:
  SilentRollout() {
    auto server = rpc::Server::Start({.listen = "127.0.0.1:0", .role = "rollout"}, {this});
    EXPECT_OK(server.status());
    server_ = *std::move(server);
  }
  grpc::Status GetServerInfo(grpc::ServerContext* context, const rollout::v1::GetServerInfoRequest*,
                             rollout::v1::GetServerInfoResponse*) override {
    was_called = true;
    EXPECT_TRUE(Eventually([context] { return context->IsCancelled(); }, kPatience));
    was_cancelled = true;
    return grpc::Status::OK;
  }
  const std::string& address() const { return server_->address(); }

  std::atomic<bool> was_called = false;
  std::atomic<bool> was_cancelled = false;

 private:
  std::unique_ptr<rpc::Server> server_;
};

// gRPC's thread that destroyed the last channel would wait for itself, and the process abort.
TEST_F(RolloutFleetTest, HeartbeatsUnderWayEndWithTheFleet) {
  SilentRollout silent;
  replicas_ = {{"rollout-0", silent.address()}};
  Start(/*replicas_may_change=*/false);
  fleet_->SetTrainer(7);
  fleet_->SendHeartbeats();
  ASSERT_TRUE(Eventually([&] { return silent.was_called.load(); }, kPatience));

  fleet_.reset();

  EXPECT_TRUE(Eventually([&] { return silent.was_cancelled.load(); }, kPatience));
}

TEST_F(RolloutFleetTest, AReportedVersionOutOfRangeIsAnErrorThatNamesTheReplica) {
  Add(/*version=*/std::numeric_limits<int64_t>::max());
  Start(/*replicas_may_change=*/false);
  EXPECT_THAT(RolloutFleet::GetServerInfo(replicas_[0]),
              StatusIs(absl::StatusCode::kOutOfRange,
                       AllOf(HasSubstr("rollout-0"), HasSubstr("9223372036854775807"))));
  EXPECT_THAT(fleet_->Generate(Prompts(1), Options()),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("9223372036854775807")));
}

TEST_F(RolloutFleetTest, AnAbortedGroupGoesOnUntilItIsWhole) {
  FakeGenerator& only = Add();
  only.end = FakeGenerator::End::kAborted;  // 3 tokens a call
  Start(true);
  ASSERT_OK_AND_ASSIGN(const std::vector<Group> groups, fleet_->Generate(Prompts(2), Options()));
  for (uint64_t i = 0; i < 2; ++i) ExpectWhole(groups[i], i);
  EXPECT_EQ(only.requests().size(), 6u);
}

TEST_F(RolloutFleetTest, AGroupWaitsForAReplicaThatJoins) {
  Add(/*version=*/-1);  // has no weights
  Start(true);
  auto run =
      std::async(std::launch::async, [&] { return fleet_->Generate(Prompts(2), Options()); });
  ASSERT_TRUE(Eventually([&] { return fleet_->WantsWeights(); }, kPatience));
  EXPECT_FALSE(fleet_->AnyServes());
  ASSERT_OK_AND_ASSIGN(const auto there, fleet_->BeginPublish());
  ASSERT_EQ(there.size(), 1u);
  generators_[0]->version = 7;
  fleet_->EndPublish(7, {"rollout-0"});
  ASSERT_OK_AND_ASSIGN(const std::vector<Group> groups, run.get());
  ExpectWhole(groups[0], 0);
  EXPECT_EQ(fleet_->TakeMetrics().at("fleet/joined"), 1);
}

TEST_F(RolloutFleetTest, AReplicaThatStandsStillLosesItsRequestsToOthers) {
  FakeGenerator& still = Add();
  Add();
  still.end = FakeGenerator::End::kSilent;
  Start(true);
  auto run =
      std::async(std::launch::async, [&] { return fleet_->Generate(Prompts(4), Options()); });
  ASSERT_TRUE(Eventually([&] { return !still.requests().empty(); }, kPatience));
  still.is_deaf = true;
  ASSERT_OK_AND_ASSIGN(const std::vector<Group> groups, run.get());
  for (uint64_t i = 0; i < 4; ++i) ExpectWhole(groups[i], i);
  const auto metrics = fleet_->TakeMetrics();
  EXPECT_EQ(metrics.at("fleet/lost"), 1);
  EXPECT_EQ(metrics.at("fleet/left"), 1);
}

TEST_F(RolloutFleetTest, OneThatIsTakenOutOfTheListFinishesWhatItHas) {
  FakeGenerator& leaving = Add();
  Add();
  leaving.end = FakeGenerator::End::kSilent;
  Start(true);
  auto run =
      std::async(std::launch::async, [&] { return fleet_->Generate(Prompts(2), Options()); });
  ASSERT_TRUE(Eventually([&] { return !leaving.requests().empty(); }, kPatience));
  {
    absl::MutexLock lock(&mu_);
    replicas_.erase(replicas_.begin());
  }
  ASSERT_TRUE(
      Eventually([&] { return fleet_->TakeMetrics().at("fleet/draining") == 1; }, kPatience));
  const size_t before = leaving.requests().size();
  ASSERT_OK(fleet_->Generate(Prompts(3), Options()).status());
  EXPECT_EQ(leaving.requests().size(), before);
  EXPECT_EQ(run.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
  fleet_->AbortAll();
  leaving.Stop();
  run.get().IgnoreError();
}

TEST_F(RolloutFleetTest, SaysWhatEachReplicaWasWhenNobodyServedInTime) {
  Add(/*version=*/-1);
  Start(true, absl::Milliseconds(300));
  EXPECT_THAT(fleet_->Generate(Prompts(1), Options()).status(),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       AllOf(HasSubstr("rollout-0 at 127.0.0.1:"), HasSubstr("is STALE"))));
}

TEST_F(RolloutFleetTest, ACancelledRunEndsAndTheFleetCanGo) {
  Add().end = FakeGenerator::End::kSilent;
  Start(true);
  absl::Notification done;
  absl::Status status;
  auto run = fleet_->Start(Prompts(1)[0], 0, Options(), [&](absl::StatusOr<Group> group) {
    status = group.status();
    done.Notify();
  });
  ASSERT_TRUE(Eventually([&] { return !generators_[0]->requests().empty(); }, kPatience));
  fleet_->Cancel(*run);
  ASSERT_TRUE(done.WaitForNotificationWithTimeout(absl::Seconds(kPatience)));
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kCancelled, ::testing::_));
  auto left = fleet_->Start(Prompts(1)[0], 0, Options(), [](absl::StatusOr<Group>) {});
  fleet_.reset();  // waits for it
}

}  // namespace
}  // namespace tandem::driver
