// An EnvironmentService that is slow, fails and dies: mortal_environment WITNESS, at
// $TANDEM_ENVIRONMENT_ENDPOINT. Before it answers a turn it writes it down: a line
// {"episode": [seed, sample, attempt], "turn", "num_tokens"} of WITNESS. Its process ends by itself after
// some turns, without a word; the run starts it again.
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <random>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "nlohmann/json.hpp"
#include "tests/fakes/fake_environment.h"

namespace tandem {
namespace {

using environment::v1::Observation;
using environment::v1::Reset;
using environment::v1::Step;

constexpr int64_t kLeastLife = 150, kMostLife = 450;  // turns

// A number that differs between the episodes of a group, and between their attempts.
uint64_t NumberOf(const Reset& reset) {
  return (reset.seed() >> 8) + static_cast<uint64_t>(reset.sample()) * 7 +
         static_cast<uint64_t>(reset.attempt()) * 3;
}

void Note(int witness, const Reset& reset, const Step& step) {
  const std::string line =
      nlohmann::json{{"episode", {reset.seed(), reset.sample(), reset.attempt()}},
                     {"turn", step.turn()},
                     {"num_tokens", step.token_ids_size()}}
          .dump() +
      "\n";
  if (write(witness, line.data(), line.size()) != static_cast<ssize_t>(line.size())) _exit(2);
}

int Run(const std::string& path) {
  const int witness = open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT, 0600);
  if (witness < 0) return 2;
  std::mt19937_64 random(static_cast<uint64_t>(getpid()));
  int64_t turns_left = std::uniform_int_distribution<int64_t>(kLeastLife, kMostLife)(random);
  testing::FakeEnvironment environment(
      {.step =
           [&](const Reset& reset, const Step& step) {
             Note(witness, reset, step);
             if (--turns_left == 0) kill(getpid(), SIGKILL);
             Observation out;
             out.set_reward(0.01 * static_cast<double>(step.text().size()));
             out.set_done(step.turn() >= 3);
             if (!out.done()) out.add_messages()->set_content(absl::StrCat(step.turn()));
             return out;
           },
       .delay = [&](const Reset&, const Step&) { return absl::Milliseconds(random() % 100); },
       .fails = [](const Reset& reset,
                   const Step& step) -> std::optional<environment::v1::EpisodeErrorCode> {
         if (step.turn() != 2 || reset.attempt() > 0) return std::nullopt;
         if (NumberOf(reset) % 11 == 1) return environment::v1::EPISODE_ERROR_CODE_RESTART;
         return std::nullopt;
       },
       .listen = std::getenv("TANDEM_ENVIRONMENT_ENDPOINT")});
  for (;;) absl::SleepFor(absl::Hours(1));
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) { return argc == 2 ? tandem::Run(argv[1]) : 2; }
