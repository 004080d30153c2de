// Environment: what answers the policy's turns in one episode.
//
//   std::unique_ptr<Environment> environment = MakeCalculator(/*in_chat=*/false);
//   auto reply = environment->Step({.number = 1, .text = "<<48/2="}, [](auto) {});
//   // reply->value().continuation is "24>>"
#ifndef TANDEM_TOOLS_TANDEM_ENVIRONMENT_ENVIRONMENT_H_
#define TANDEM_TOOLS_TANDEM_ENVIRONMENT_ENVIRONMENT_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/tandem/environment/turn_calls.h"

namespace tandem::environment {

// A turn of the policy.
struct SampledTurn {
  int64_t number = 1;
  std::string text;  // since the last observation, without special tokens
  std::vector<uint32_t> token_ids;
  // The model ended its turn. False: a stop string of the environment, or the limit of tokens, did.
  bool is_ended = false;
  bool is_cut = false;  // by the limit of tokens
  std::vector<ToolCall> tool_calls;
};

// What the environment says. At most one of messages, continuation and token_ids is set.
struct Reply {
  // Messages of a conversation, [{"role", "content", ...}]; null: none. A content with images is a list
  // of parts, {"type": "image"} and {"type": "text", "text"}.
  nlohmann::ordered_json messages;
  std::string continuation;         // text that follows within the policy's own turn
  std::vector<uint32_t> token_ids;  // follow the turn as they are
  // The files of the messages' image parts, or of the runs of placeholders in token_ids, in order.
  std::vector<std::shared_ptr<const std::string>> images;
  bool goes_on = false;  // nothing to say: the policy continues the same turn
  bool done = false;
  double reward = 0;  // of this turn
  int64_t num_tool_calls = 0;
  int64_t num_malformed_calls = 0;
};

// Errors of an environment. An error without a mark ends the run.
absl::Status MayPlayAgain(const absl::Status& error);  // the episode is lost, another may do better
absl::Status DropEpisode(const absl::Status& error);   // the episode is lost with its group
enum class Loss { kNone, kPlayAgain, kDrop };
Loss LossOf(const absl::Status& error);

// Used by one thread at a time.
class Environment {
 public:
  using Done = std::function<void(absl::StatusOr<Reply>)>;

  virtual ~Environment() = default;

  // Strings that end a turn, besides those of the run. The environment answers them.
  virtual std::vector<std::string> stop() const { return {}; }

  // Answers a turn, at once, or returns nullopt and calls `done` once, later, from any thread, within
  // a deadline of its own.
  virtual std::optional<absl::StatusOr<Reply>> Step(const SampledTurn& turn, Done done) = 0;
};

}  // namespace tandem::environment

#endif  // TANDEM_TOOLS_TANDEM_ENVIRONMENT_ENVIRONMENT_H_
