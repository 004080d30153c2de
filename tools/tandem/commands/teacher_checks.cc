#include "tools/tandem/commands/teacher_checks.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "common/config/teacher.h"
#include "tools/tandem/commands/command.h"

namespace tandem::commands {

absl::Status CheckTeacherKeys(absl::string_view command, const config::v1::RunConfig& config,
                              const config::Places& places) {
  if (config::TeachersOf(config).empty()) return absl::OkStatus();
  std::string key, problem;
  if (command == "train" || command == "replay") {
    if (config::DistilsOnPolicy(config)) return absl::OkStatus();
    key = "teacher.top_k";
    problem = absl::StrCat("tandem ", command,
                           " takes it with teacher.mode loss; with advantage it learns from the "
                           "teacher's log-probs of sampled tokens");
  } else if (command == "sft") {
    if (config.teacher().mode() == config::v1::DISTILLATION_MODE_LOSS) {
      key = "teacher.mode";
      problem = "is for tandem train; tandem sft trains on the likeliest tokens alone (remove it)";
    } else if (config::DistilsTopK(config)) {
      return absl::OkStatus();
    } else {
      key = "teacher.top_k";
      problem = absl::StrCat("expected 1 to ", config::kMaxTeacherTopK,
                             ", the teacher's likeliest tokens that tandem sft trains on, found 0");
    }
  } else {
    key = "teacher";
    problem = absl::StrCat("tandem ", command, " learns from no teacher; remove the section");
  }
  const auto place = places.find(key);
  return Misuse(absl::InvalidArgumentError(absl::StrCat(
      place == places.end() ? "" : absl::StrCat(place->second, ": "), key, ": ", problem)));
}

}  // namespace tandem::commands
