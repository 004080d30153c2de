// What a reward worker (reward_worker.py) answers. The user's function shares the worker's process,
// so a message may be anything.
#ifndef TANDEM_TOOLS_TANDEM_REWARD_WORKER_MESSAGES_H_
#define TANDEM_TOOLS_TANDEM_REWARD_WORKER_MESSAGES_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"

namespace tandem::reward {

// One reward per completion; nullopt: the reward does not apply to it.
using OptionalRewards = std::vector<std::optional<double>>;

// The worker's first message: which function of the user's file it calls.
struct WorkerHello {
  std::string function;
  bool scores_groups = false;  // a call scores all completions of a prompt, otherwise one
};

// Returns the object that a message is. DATA_LOSS for other text; INVALID_ARGUMENT for an exception
// of the user's file, which is the message's.
absl::StatusOr<nlohmann::json> ParseWorkerMessage(absl::string_view text);

// DATA_LOSS if the message is none.
absl::StatusOr<WorkerHello> ParseHello(const nlohmann::json& message);
absl::StatusOr<OptionalRewards> ParseRewards(const nlohmann::json& message);

}  // namespace tandem::reward

#endif  // TANDEM_TOOLS_TANDEM_REWARD_WORKER_MESSAGES_H_
