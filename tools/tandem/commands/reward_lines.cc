#include "tools/tandem/commands/reward_lines.h"

#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/io/json_text.h"
#include "common/text/count.h"

namespace tandem::commands {

void RewardLines::Print(const absl::StatusOr<double>& reward) {
  ++num_rows_;
  nlohmann::json line = {{"reward", nullptr}};
  if (reward.ok()) {
    line["reward"] = *reward;
  } else {
    line["error"] = std::string(reward.status().message());
    if (num_failed_++ == 0) first_ = reward.status();
  }
  std::printf("%s", io::ToJsonLine(line).c_str());
}

void RewardLines::Flush() const { std::fflush(stdout); }

absl::Status RewardLines::Failures() const {
  if (num_failed_ == 0) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(num_failed_, " of ",
                                             text::Count(num_rows_, "judgement"),
                                             " failed; the first: ", first_.message()));
}

}  // namespace tandem::commands
