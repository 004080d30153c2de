#include "tools/tandem/reward/worker_messages.h"

#include <utility>

#include "absl/status/status.h"
#include "common/io/json_text.h"
#include "common/io/parse_json.h"

namespace tandem::reward {

using nlohmann::json;

absl::StatusOr<json> ParseWorkerMessage(absl::string_view text) {
  json message = io::ParseJson<json>(text).value_or(nullptr);
  if (!message.is_object()) return absl::DataLossError("expected a message in JSON");
  if (const auto error = message.find("error"); error != message.end()) {
    return absl::InvalidArgumentError(error->is_string() ? error->get<std::string>()
                                                         : io::JsonText(*error));
  }
  return message;
}

absl::StatusOr<WorkerHello> ParseHello(const json& message) {
  const auto name = message.find("function");
  const auto style = message.find("style");
  if (name == message.end() || !name->is_string() || style == message.end()) {
    return absl::DataLossError("the worker named no function");
  }
  return WorkerHello{.function = *name, .scores_groups = *style == "group"};
}

absl::StatusOr<OptionalRewards> ParseRewards(const json& message) {
  const auto rewards = message.find("rewards");
  if (rewards == message.end() || !rewards->is_array()) {
    return absl::DataLossError("expected a message with rewards");
  }
  OptionalRewards out;
  for (const json& reward : *rewards) {
    if (!reward.is_null() && !reward.is_number()) {
      return absl::DataLossError("expected rewards that are numbers");
    }
    out.push_back(reward.is_null() ? std::nullopt : std::optional(reward.get<double>()));
  }
  return out;
}

}  // namespace tandem::reward
