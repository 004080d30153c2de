#include "tools/tandem/environment/environment.h"

#include "absl/strings/cord.h"

namespace tandem::environment {
namespace {

constexpr char kLoss[] = "tandem/episode_loss";

absl::Status Marked(absl::Status error, absl::string_view loss) {
  error.SetPayload(kLoss, absl::Cord(loss));
  return error;
}

}  // namespace

absl::Status MayPlayAgain(const absl::Status& error) { return Marked(error, "play_again"); }
absl::Status DropEpisode(const absl::Status& error) { return Marked(error, "drop"); }

Loss LossOf(const absl::Status& error) {
  const absl::optional<absl::Cord> payload = error.GetPayload(kLoss);
  if (!payload.has_value()) return Loss::kNone;
  return *payload == "play_again" ? Loss::kPlayAgain : Loss::kDrop;
}

}  // namespace tandem::environment
