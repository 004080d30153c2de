// The program of an EnvironmentService.
#include "tools/tandem/environment/service_process.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "tests/support/program.h"
#include "tests/support/run_processes.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"

namespace tandem::environment {
namespace {

using ::tandem::testing::Eventually;
using ::tandem::testing::ReadWhole;
using ::tandem::testing::TempFolder;

TEST(ServiceProcess, KnowsWhereToServeAndStartsAgain) {
  const TempFolder folder;
  ASSERT_OK_AND_ASSIGN(
      auto service,
      ServiceProcess::Start({.command = absl::StrCat("echo $TANDEM_ENVIRONMENT_ENDPOINT >> ",
                                                     folder / "starts", "; echo bye; exit 3"),
                             .endpoint = "127.0.0.1:5100",
                             .log_path = folder / "log",
                             .first_pause = absl::Milliseconds(10),
                             .longest_pause = absl::Milliseconds(20)}));
  ASSERT_TRUE(Eventually([&] { return service->num_starts() >= 3; }, 60));
  EXPECT_THAT(service->last_end(),
              testing::StatusIs(absl::StatusCode::kUnavailable,
                                ::testing::AllOf(::testing::HasSubstr("exited with 3"),
                                                 ::testing::HasSubstr(folder / "log"))));
  service.reset();
  EXPECT_THAT(ReadWhole(folder / "starts"),
              ::testing::StartsWith("127.0.0.1:5100\n127.0.0.1:5100\n"));
  EXPECT_THAT(ReadWhole(folder / "log"), ::testing::StartsWith("bye\nbye\n"));
}

TEST(ServiceProcess, EndsWithItsOwner) {
  const TempFolder folder;
  ASSERT_OK_AND_ASSIGN(
      auto service,
      ServiceProcess::Start({.command = absl::StrCat("sleep 1000 & echo $! > ", folder / "pid",
                                                     "; echo ready > ", folder / "ready", "; wait"),
                             .endpoint = "127.0.0.1:5100"}));
  ASSERT_TRUE(Eventually([&] { return ReadWhole(folder / "ready") == "ready\n"; }, 60));
  int pid = 0;
  ASSERT_TRUE(absl::SimpleAtoi(ReadWhole(folder / "pid"), &pid));
  service.reset();
  EXPECT_TRUE(Eventually([&] { return kill(pid, 0) != 0; }, 30));
}

}  // namespace
}  // namespace tandem::environment
