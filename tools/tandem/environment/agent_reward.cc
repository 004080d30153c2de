#include <nlohmann/json.hpp>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/rewards/reward_range.h"
#include "tools/tandem/environment/agent_program.h"

namespace tandem::environment {

absl::StatusOr<std::optional<double>> ReadReward(absl::string_view output) {
  const std::vector<absl::string_view> lines = absl::StrSplit(output, '\n');
  for (auto line = lines.rbegin(); line != lines.rend(); ++line) {
    const absl::string_view text = absl::StripAsciiWhitespace(*line);
    if (text.empty() || text.front() != '{') continue;
    const nlohmann::json object =
        nlohmann::json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
    if (!object.is_object()) continue;
    const auto reward = object.find("reward");
    if (reward == object.end() || reward->is_null()) return std::nullopt;
    if (!reward->is_number()) {
      return absl::InvalidArgumentError(
          absl::StrCat("expected a number as the agent's reward, found a ", reward->type_name()));
    }
    const auto value = reward->get<double>();
    if (rewards::IsReward(value)) return value;
    return absl::InvalidArgumentError(
        absl::StrCat("the agent's reward: ", rewards::ExpectedReward(value)));
  }
  return std::nullopt;
}

}  // namespace tandem::environment
