// The processes of the fault tests are gone when the test is, however it ends.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "tests/fault/actor_process.h"
#include "tests/support/run_processes.h"

namespace tandem::testing {
namespace {

TEST(ActorProcess, EndsWithAParentThatIsKilled) {
  int fds[2];
  ASSERT_EQ(pipe(fds), 0);
  const pid_t parent = fork();
  if (parent == 0) {
    ActorProcess actor(UPDATE_ACTOR, {"rollout"}, "/dev/null");
    if (!actor.Await("ready", absl::Minutes(1)).has_value()) _exit(1);
    const pid_t pid = actor.pid();
    if (write(fds[1], &pid, sizeof(pid)) != sizeof(pid)) _exit(1);
    while (true) pause();
  }
  pid_t actor = 0;
  ASSERT_EQ(read(fds[0], &actor, sizeof(actor)), static_cast<ssize_t>(sizeof(actor)));
  ASSERT_EQ(kill(actor, 0), 0);

  kill(parent, SIGKILL);
  waitpid(parent, nullptr, 0);

  // It may be a zombie until whoever inherited it looks.
  EXPECT_TRUE(Eventually(
      [actor] {
        const std::string stat = ReadWhole("/proc/" + std::to_string(actor) + "/stat");
        return stat.empty() || stat.find(") Z") != std::string::npos;
      },
      20));
}

}  // namespace
}  // namespace tandem::testing
