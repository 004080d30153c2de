// Agent programs: what they are told, what they say, and how they end.
#include "tools/tandem/environment/agent_program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/common/http/test_site.h"
#include "tests/support/program.h"
#include "tests/support/run_processes.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"

namespace tandem::environment {
namespace {

using ::tandem::testing::IsOkAndHolds;
using ::tandem::testing::ReadWhole;
using ::tandem::testing::StatusIs;
using ::tandem::testing::TempFolder;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr absl::Duration kPatience = absl::Seconds(60);

AgentTask Task() {
  return {.base_url = "http://127.0.0.1:1/v1",
          .session_id = "key",
          .row = {{"prompt", "1+1"}, {"answer", "2"}},
          .seed = 5,
          .sample = 2,
          .attempt = 1};
}

bool Never() { return false; }

AgentRun RunCommand(const std::string& command, absl::Duration patience = kPatience) {
  return MakeAgentCommand(command)->Run(Task(), absl::Now() + patience, Never);
}

TEST(AgentReward, IsInTheLastObject) {
  EXPECT_THAT(ReadReward("{\"reward\": 1}\nThe end\n{\"steps\": 3, \"reward\": 0.5}\nbye {\n"),
              IsOkAndHolds(0.5));
  EXPECT_THAT(ReadReward("  {\"reward\": -2}  "), IsOkAndHolds(-2.0));
  for (const char* none : {"", "0.5\n", "[1]\n", "{\"reward\": 1}\n{\"steps\": 3}\n",
                           "{\"reward\": null}", "{\"reward\": 1"}) {
    EXPECT_THAT(ReadReward(none), IsOkAndHolds(std::optional<double>())) << none;
  }
  EXPECT_THAT(ReadReward("{\"reward\": \"1\"}").status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("found a string")));
  EXPECT_THAT(ReadReward("{\"reward\": 1e300}").status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("found 1e+300")));
}

TEST(AgentCommand, IsToldItsTask) {
  setenv("TANDEM_OPENAI_TOKEN", "secret", 1);
  const TempFolder folder;
  const AgentRun run = RunCommand(absl::StrCat(
      "cat > ", folder / "row",
      "; echo $OPENAI_BASE_URL $OPENAI_API_KEY $TANDEM_SESSION_ID "
      "$TANDEM_SEED $TANDEM_SAMPLE $TANDEM_ATTEMPT \"$TANDEM_PROMPT\" $TANDEM_OPENAI_TOKEN > ",
      folder / "told", "; echo '{\"reward\": 0.25}'"));
  ASSERT_OK(run.status);
  EXPECT_EQ(run.reward, 0.25);
  const std::string row = R"({"answer":"2","prompt":"1+1"})";
  EXPECT_EQ(ReadWhole(folder / "row"), row);
  EXPECT_EQ(ReadWhole(folder / "told"), "http://127.0.0.1:1/v1 key key 5 2 1 " + row + "\n");
}

TEST(AgentCommand, AFailureHasTheEndOfItsErrors) {
  const AgentRun failed =
      RunCommand("seq 100000 >&2; echo oh dear >&2; echo '{\"reward\": 1}'; exit 3");
  EXPECT_THAT(failed.status, StatusIs(absl::StatusCode::kUnavailable, HasSubstr("exited with 3")));
  EXPECT_THAT(failed.log, ::testing::EndsWith("oh dear"));
  EXPECT_LE(failed.log.size(), 2048u);
  EXPECT_FALSE(failed.reward.has_value());
  const AgentRun rewardless = RunCommand("true");
  ASSERT_OK(rewardless.status);
  EXPECT_FALSE(rewardless.reward.has_value());
}

TEST(AgentCommand, ARowOfAnyLengthArrives) {
  AgentTask task = Task();
  task.row["prompt"] = std::string(3 << 20, 'x');
  const AgentRun run =
      MakeAgentCommand("echo {\\\"reward\\\": $(wc -c)}; test -z \"$TANDEM_PROMPT\"")
          ->Run(task, absl::Now() + kPatience, Never);
  ASSERT_OK(run.status);
  EXPECT_GT(run.reward, 3 << 20);
}

// The process and what it started are gone.
bool IsGone(const std::string& file) {
  int pid = 0;
  return absl::SimpleAtoi(ReadWhole(file), &pid) && kill(pid, 0) != 0;
}

TEST(AgentCommand, ADeadlineEndsAllThatItStarted) {
  const TempFolder folder;
  const AgentRun run = RunCommand(absl::StrCat("sleep 1000 & echo $! > ", folder / "pid", "; wait"),
                                  absl::Milliseconds(500));
  EXPECT_THAT(run.status,
              StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("environment.timeout_s")));
  EXPECT_TRUE(testing::Eventually([&] { return IsGone(folder / "pid"); }, 30));
}

TEST(AgentCommand, IsCutOff) {
  const TempFolder folder;
  std::atomic<bool> cancelled{false};
  std::thread canceller([&] {
    testing::Eventually([&] { return std::filesystem::exists(folder / "pid"); }, 60);
    cancelled = true;
  });
  const AgentRun run =
      MakeAgentCommand(absl::StrCat("echo $$ > ", folder / "pid", "; exec sleep 1000"))
          ->Run(Task(), absl::Now() + kPatience, [&] { return cancelled.load(); });
  canceller.join();
  EXPECT_THAT(run.status, StatusIs(absl::StatusCode::kCancelled, HasSubstr("no longer needed")));
  EXPECT_TRUE(IsGone(folder / "pid"));
}

TEST(AgentCommand, IsLookedForBeforeItRuns) {
  EXPECT_OK(MakeAgentCommand("A=1 B=2 ls -l")->Check());
  EXPECT_OK(MakeAgentCommand("cd /tmp && ls")->Check());
  EXPECT_OK(MakeAgentCommand("$HOME/agent")->Check());  // the shell's to say
  EXPECT_THAT(MakeAgentCommand("no-such-agent --fast")->Check(),
              StatusIs(absl::StatusCode::kNotFound, AllOf(HasSubstr("environment.command"),
                                                          HasSubstr("no-such-agent is neither"))));
  EXPECT_THAT(MakeAgentCommand("  ")->Check(),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("found none")));
}

TEST(AgentServer, AnAnswerThatIsNoObjectFails) {
  http::TestSite site;
  ASSERT_OK_AND_ASSIGN(const auto agent,
                       MakeAgentServer(absl::StrCat("http://127.0.0.1:", site.port(), "/length")));
  const AgentRun run = agent->Run(Task(), absl::Now() + kPatience, Never);
  EXPECT_THAT(run.status,
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("expected a JSON object")));
  ASSERT_OK_AND_ASSIGN(const auto refused,
                       MakeAgentServer(absl::StrCat("http://127.0.0.1:", site.port(), "/refused")));
  EXPECT_THAT(refused->Run(Task(), absl::Now() + kPatience, Never).status,
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("HTTP 401")));
  for (const char* url : {"ftp://127.0.0.1/", "127.0.0.1:80", "http://", "http://a:b/"}) {
    EXPECT_THAT(MakeAgentServer(url).status(),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr("expected http://HOST"), HasSubstr("environment.url"))));
  }
}

}  // namespace
}  // namespace tandem::environment
