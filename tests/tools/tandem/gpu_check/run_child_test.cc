#include "tools/tandem/gpu_check/run_child.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/time/clock.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"

namespace tandem::gpu_check {
namespace {

using ::tandem::testing::StatusIs;
using ::tandem::testing::TempFolder;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::SizeIs;

class RunChildTest : public ::testing::Test {
 protected:
  ChildOutput Run(const std::string& script, absl::Duration limit = absl::Seconds(60)) {
    return RunChild({.argv = {"/bin/sh", "-c", script},
                     .environment = {},
                     .log_path = folder_ / "log",
                     .deadline = absl::Now() + limit,
                     .interrupted = {}});
  }

  const TempFolder folder_;
};

TEST_F(RunChildTest, ReadsTheObjectsAmongOtherLines) {
  const ChildOutput output =
      Run(R"(echo hello; echo '{"a": 1}'; echo '{broken'; echo '[2]'; echo ' {"b": 2}' >&2)");

  EXPECT_OK(output.status);
  ASSERT_THAT(output.objects, SizeIs(2));
  EXPECT_EQ(output.objects[0]["a"], 1);
  EXPECT_EQ(output.objects[1]["b"], 2);
}

TEST_F(RunChildTest, ACrashIsAnErrorWithTheEndOfTheLogAndWhatWasPrintedBefore) {
  const ChildOutput output = Run(R"(echo '{"a": 1}'; echo illegal address; kill -SEGV $$)");

  EXPECT_THAT(output.status, StatusIs(absl::StatusCode::kUnavailable,
                                      AllOf(HasSubstr("SIGSEGV"), HasSubstr("illegal address"))));
  EXPECT_THAT(output.objects, SizeIs(1));
}

TEST_F(RunChildTest, AnExitCodeIsAnError) {
  EXPECT_THAT(Run("echo no memory; exit 3").status,
              StatusIs(absl::StatusCode::kUnavailable,
                       AllOf(HasSubstr("exited with 3"), HasSubstr("no memory"))));
}

TEST_F(RunChildTest, OneThatHangsIsEndedAtItsDeadlineWithWhatItStarted) {
  const absl::Time start = absl::Now();
  const ChildOutput output = Run("trap '' TERM; sleep 1000 & echo waiting; wait", absl::Seconds(1));

  EXPECT_THAT(output.status, StatusIs(absl::StatusCode::kDeadlineExceeded,
                                      AllOf(HasSubstr("after 1s"), HasSubstr("waiting"))));
  EXPECT_LT(absl::Now() - start, absl::Seconds(30));
}

TEST_F(RunChildTest, AnInterruptEndsIt) {
  const ChildOutput output = RunChild({.argv = {"/bin/sleep", "1000"},
                                       .environment = {},
                                       .log_path = folder_ / "log",
                                       .deadline = absl::InfiniteFuture(),
                                       .interrupted = [] { return true; }});

  EXPECT_THAT(output.status, StatusIs(absl::StatusCode::kCancelled, HasSubstr("interrupted")));
}

TEST_F(RunChildTest, AProgramThatDoesNotExistIsNamed) {
  const ChildOutput output = RunChild({.argv = {"/no/such/program"},
                                       .environment = {},
                                       .log_path = folder_ / "log",
                                       .deadline = absl::InfiniteFuture(),
                                       .interrupted = {}});

  EXPECT_FALSE(output.status.ok());
  EXPECT_THAT(std::string(output.status.message()), HasSubstr("/no/such/program"));
}

TEST_F(RunChildTest, AnEarlierLogIsNotRead) {
  Run(R"(echo '{"a": 1}')");

  EXPECT_THAT(Run("echo again").objects, SizeIs(0));
}

TEST(LastLines, AreTheLastThatAreNoObjects) {
  EXPECT_EQ(LastLines("a\n\nb\n{\"c\": 1}\nd\n", 2), "b\nd");
  EXPECT_EQ(LastLines("", 2), "");
}

}  // namespace
}  // namespace tandem::gpu_check
