// Whether a command has a use for the configuration's teachers.
#ifndef TANDEM_TOOLS_TANDEM_COMMANDS_TEACHER_CHECKS_H_
#define TANDEM_TOOLS_TANDEM_COMMANDS_TEACHER_CHECKS_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/config/place.h"
#include "tandem/config/v1/run_config.pb.h"

namespace tandem::commands {

// `command`: train, replay, sft, dpo or "bench rl". Misuse names the key that the command has no use
// for, or that it needs: train and replay learn from log-probs of sampled tokens, sft from
// teacher.top_k, the others from no teacher.
absl::Status CheckTeacherKeys(absl::string_view command, const config::v1::RunConfig& config,
                              const config::Places& places);

}  // namespace tandem::commands

#endif  // TANDEM_TOOLS_TANDEM_COMMANDS_TEACHER_CHECKS_H_
