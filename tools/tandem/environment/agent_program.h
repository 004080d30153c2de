// AgentProgram: a program of the user's that plays an episode by itself: it calls the rollout's OpenAI
// endpoint, where its session is recorded, and may say what the episode earned.
//
//   std::unique_ptr<AgentProgram> agent = MakeAgentCommand("python3 agent.py");
//   const AgentRun run = agent->Run(task, absl::Now() + absl::Seconds(60), cancelled);
#ifndef TANDEM_TOOLS_TANDEM_ENVIRONMENT_AGENT_PROGRAM_H_
#define TANDEM_TOOLS_TANDEM_ENVIRONMENT_AGENT_PROGRAM_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace tandem::environment {

// One episode.
struct AgentTask {
  std::string base_url;    // of the OpenAI endpoint
  std::string session_id;  // the API key
  nlohmann::json row;      // of the data set
  uint64_t seed = 0;       // for the program's randomness; the same for all of a group
  int64_t sample = 0;      // of the group
  int64_t attempt = 0;     // counted from 0
};

struct AgentRun {
  absl::Status status;           // an error if the program failed; CANCELLED if it was cut off
  std::optional<double> reward;  // what it said the episode earned
  std::string log;               // the end of what it wrote to stderr
};

// Thread-safe.
class AgentProgram {
 public:
  virtual ~AgentProgram() = default;

  // FAILED_PRECONDITION or NOT_FOUND if the program cannot be started.
  virtual absl::Status Check() const = 0;

  // Plays an episode and returns at its end. At the deadline, and soon after `cancelled` is true, the
  // program is killed with all that it has started.
  virtual AgentRun Run(const AgentTask& task, absl::Time deadline,
                       const std::function<bool()>& cancelled) const = 0;
};

// A command for /bin/sh, started for each episode in a process group of its own. It finds the task in
// OPENAI_BASE_URL, OPENAI_API_KEY, TANDEM_SESSION_ID, TANDEM_SEED, TANDEM_SAMPLE, TANDEM_ATTEMPT and,
// unless the row is longer than 64 KiB, TANDEM_PROMPT, which is the row as JSON; stdin has the row too.
// It inherits this process's variables but for TANDEM_*. It succeeds with exit status 0, and says the
// reward in the last JSON object that it writes to stdout on a line of its own: {"reward": 0.5}.
std::unique_ptr<AgentProgram> MakeAgentCommand(std::string command);

// A server, which plays an episode per POST of {"base_url", "api_key", "row", "seed", "sample",
// "attempt"} and answers 200 with a JSON object that may have the reward. INVALID_ARGUMENT unless the
// URL is http://HOST:PORT/PATH.
absl::StatusOr<std::unique_ptr<AgentProgram>> MakeAgentServer(const std::string& url);

// The reward of the last line that is a JSON object; nullopt if there is none, or it has none.
// INVALID_ARGUMENT for a reward that is no number in range.
absl::StatusOr<std::optional<double>> ReadReward(absl::string_view output);

// Whether /bin/sh finds the program that a command begins with. NOT_FOUND names it.
absl::Status CheckCommand(const std::string& command);

}  // namespace tandem::environment

#endif  // TANDEM_TOOLS_TANDEM_ENVIRONMENT_AGENT_PROGRAM_H_
