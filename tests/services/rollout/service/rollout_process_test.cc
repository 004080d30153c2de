// The program tandem-rollout: how it starts, what it says to misuse, how it ends.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/rpc/channel.h"
#include "common/rpc/child_process.h"
#include "common/rpc/process.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_data.h"

namespace tandem::rollout {
namespace {

constexpr absl::Duration kTimeout = absl::Seconds(90);
constexpr char kStories[] = "models/tinystories-656k";

class RolloutProcessTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* bin = std::getenv("TANDEM_BIN");
    if (bin == nullptr) GTEST_SKIP() << "TANDEM_BIN is not set; run by ctest";
    program_ = std::string(bin) + "/tandem-rollout";
  }

  std::unique_ptr<rpc::ChildProcess> Start(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), program_);
    auto child = rpc::ChildProcess::Start({.name = "rollout", .argv = std::move(arguments)});
    EXPECT_OK(child.status());
    return std::move(child).value();
  }

  // What became of a program that is to end by itself.
  std::string Outcome(std::vector<std::string> arguments) {
    const auto child = Start(std::move(arguments));
    return child->Wait(kTimeout) ? child->ExitDescription() : "still runs";
  }

  std::string program_;
};

TEST_F(RolloutProcessTest, ServesAFolderAndEndsInOrderOnSigterm) {
  SKIP_WITHOUT_DATA(kStories);
  const std::string ready = ::testing::TempDir() + "/rollout-process-test.ready";
  std::remove(ready.c_str());
  const auto child = Start(
      {"--model", testing::TestData(kStories), "--listen", "127.0.0.1:0", "--ready-file", ready});
  ASSERT_OK_AND_ASSIGN(const std::string address, rpc::WaitForReadyFile(ready, *child, kTimeout));
  EXPECT_OK(rpc::WaitUntilHealthy(rpc::MakeChannel(address), "tandem.rollout.v1.RolloutService",
                                  kTimeout));
  child->Terminate();
  ASSERT_TRUE(child->Wait(kTimeout));
  EXPECT_OK(child->ExitStatus());
}

TEST_F(RolloutProcessTest, AnswersMisuseWithTwoAndFailureWithOne) {
  EXPECT_EQ(Outcome({"--no-such-flag"}), "exited with 2");
  EXPECT_EQ(Outcome({"--model", "/nowhere", "--set", "rollout.blok_size=16"}), "exited with 2");
  EXPECT_EQ(Outcome({}), "exited with 2");
  EXPECT_EQ(Outcome({"--model", "/nowhere"}), "exited with 1");
}

}  // namespace
}  // namespace tandem::rollout
