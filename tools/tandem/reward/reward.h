// A reward scores a completion, given its row's answer. Each is one file and one line in
// registry.cc, and is found by its configured name (registry.h).
#ifndef TANDEM_TOOLS_TANDEM_REWARD_REWARD_H_
#define TANDEM_TOOLS_TANDEM_REWARD_REWARD_H_

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tandem::reward {

struct RewardInput {
  std::string completion;
  std::string answer;
  std::string finish_reason = "stop";  // stop, length or aborted
};

// Thread-safe and deterministic. INVALID_ARGUMENT if the row's answer is invalid (no pattern, no
// number); the model's text never causes an error.
using RewardFn = std::function<absl::StatusOr<double>(const RewardInput&)>;

struct RewardOptions {
  std::string pattern;  // reward.pattern
};

// Checks a row's answer, before anything is sampled: INVALID_ARGUMENT if the reward cannot use it.
using AnswerCheck = std::function<absl::Status(const std::string& answer)>;

// Whether any completion can match an answer that the check accepts.
using AnswerTest = std::function<bool(const std::string& answer)>;

struct RewardKind {
  const char* name;  // reward.name
  // INVALID_ARGUMENT if an option is invalid; names the option.
  absl::StatusOr<RewardFn> (*make)(const RewardOptions& options);
  bool has_pattern = false;  // supports reward.pattern
  // Whether rows need an answer, with options that make() accepts; null: always.
  bool (*needs_answer)(const RewardOptions& options) = nullptr;
  // Both with options that make() accepts, for rewards that need an answer. Null: every text will do,
  // and can be matched.
  AnswerCheck (*make_answer_check)(const RewardOptions& options) = nullptr;
  AnswerTest (*make_answer_test)(const RewardOptions& options) = nullptr;
};

}  // namespace tandem::reward

#endif  // TANDEM_TOOLS_TANDEM_REWARD_REWARD_H_
