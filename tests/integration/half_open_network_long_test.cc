// A run under update_policy "available" while packets to and from one rollout, or all, are lost: a
// firewall that lets calls through and no data, a path that loses long packets, a line that loses
// every fifth. The run goes on, and a rollout that works again is used again.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/addition_data.h"
#include "tests/support/program.h"
#include "tests/support/run_processes.h"
#include "tests/support/supervised_run.h"

namespace tandem {
namespace {

using ::testing::HasSubstr;

constexpr int kPatience = 400;  // seconds; a wait that reaches it has failed

// Calls are on port 5000.
constexpr char kNoData[] = "tcp dport 5000 accept; tcp sport 5000 accept; meta l4proto tcp drop";
constexpr char kNoCalls[] = "tcp dport 5000 drop";
constexpr char kNoLongPackets[] = "meta length > 600 drop";
constexpr char kEveryFifth[] = "numgen random mod 100 < 20 drop";

class HalfOpenNetwork : public ::testing::Test {
 protected:
  void Start(int64_t total_steps) {
    if (std::system("nft --version > /dev/null 2>&1") != 0) GTEST_SKIP() << "there is no nft";
    run_ = std::make_unique<testing::SupervisedRun>(
        testing::SupervisedRunOptions{.total_steps = total_steps, .own_networks = true});
    if (absl::IsPermissionDenied(run_->status())) {
      GTEST_SKIP() << "network namespaces: " << run_->status().message();
    }
    ASSERT_TRUE(run_->status().ok()) << run_->status();
    AwaitStep(2);
  }

  // Packets that come in at a process, and those that go out where `both`.
  void Filter(const std::string& name, const std::string& rule, bool both = false) {
    const auto chain = [&rule](const std::string& hook) {
      return "chain " + hook + " {\n type filter hook " + hook + " priority 0;\n " + rule + "\n}\n";
    };
    const std::string text =
        "table inet t {\n" + chain("input") + (both ? chain("output") : "") + "}\n";
    ASSERT_TRUE(run_->RunIn(name, {"nft", text})) << "nft in " << name;
  }
  void Unfilter(const std::string& name) {
    ASSERT_TRUE(run_->RunIn(name, {"nft", "flush ruleset"}));
  }

  void AwaitStep(int64_t step) {
    ASSERT_TRUE(testing::Eventually(
        [&] { return run_->finished() || run_->step() >= step || run_->NumStarts("driver") > 1; },
        kPatience))
        << run_->Logs();
    ASSERT_EQ(run_->NumStarts("driver"), 1) << "the run ended: " << run_->Logs();
  }
  void ExpectFinished() {
    ASSERT_TRUE(testing::Eventually(
        [&] { return run_->finished() || run_->NumStarts("driver") > 1; }, kPatience))
        << run_->Logs();
    EXPECT_EQ(run_->NumStarts("driver"), 1) << "the run ended: " << run_->Logs();
  }

  // Of the last step.
  double Metric(const std::string& name) const {
    std::string text = testing::ReadWhole(run_->run_dir() + "/metrics.jsonl");
    text.resize(text.rfind('\n') + 1);
    return testing::JsonLines(text).back()[name].get<double>();
  }

  std::unique_ptr<testing::SupervisedRun> run_;
};

TEST_F(HalfOpenNetwork, ARolloutWhoseDataPortsAreBlockedIsFedByTheOther) {
  Start(14);
  if (IsSkipped()) return;
  Filter("rollout-1", kNoData);
  AwaitStep(run_->step() + 4);
  EXPECT_THAT(run_->LogOf("trainer-0"), HasSubstr("feeding it separately"));
  EXPECT_EQ(Metric("fleet/serving"), 2);
  Unfilter("rollout-1");
  ExpectFinished();
}

TEST_F(HalfOpenNetwork, ARolloutWhoseCallsAreBlockedIsLostAndComesBack) {
  Start(40);
  if (IsSkipped()) return;
  Filter("rollout-1", kNoCalls);
  AwaitStep(run_->step() + 4);
  EXPECT_EQ(Metric("fleet/lost"), 1);
  Unfilter("rollout-1");
  ExpectFinished();
}

TEST_F(HalfOpenNetwork, ARolloutToWhichLongPacketsAreLostIsLostAndComesBack) {
  Start(60);
  if (IsSkipped()) return;
  Filter("rollout-1", kNoLongPackets);
  AwaitStep(run_->step() + 6);
  EXPECT_EQ(Metric("fleet/serving"), 1);
  EXPECT_EQ(Metric("fleet/lost") + Metric("fleet/backing_off"), 1);
  Unfilter("rollout-1");
  EXPECT_TRUE(testing::Eventually([&] { return run_->finished() || Metric("fleet/serving") == 2; },
                                  kPatience))
      << run_->Logs();
  ExpectFinished();
}

TEST_F(HalfOpenNetwork, ALineThatLosesEveryFifthPacketEndsNothing) {
  Start(8);
  if (IsSkipped()) return;
  Filter("rollout-1", kEveryFifth, /*both=*/true);
  ExpectFinished();
}

}  // namespace
}  // namespace tandem
