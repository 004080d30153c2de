#include "services/trainer/service/rank_command.h"

#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"

namespace tandem::trainer {

absl::StatusOr<SnapshotState> SnapshotState::Decode(const std::string& text) {
  const std::vector<std::string> parts = absl::StrSplit(text, absl::MaxSplits(' ', 3));
  SnapshotState out;
  int running = 0, code = 0;
  if (parts.size() != 4 || !absl::SimpleAtoi(parts[0], &running) ||
      !absl::SimpleAtod(parts[1], &out.seconds) || !absl::SimpleAtoi(parts[2], &code)) {
    return absl::InternalError(absl::StrCat("a rank replied \"", text, "\" about its snapshot"));
  }
  out.running = running != 0;
  out.status = absl::Status(static_cast<absl::StatusCode>(code), parts[3]);
  return out;
}

}  // namespace tandem::trainer
