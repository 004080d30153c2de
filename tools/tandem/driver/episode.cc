#include "tools/tandem/driver/episode.h"

#include <utility>

namespace tandem::driver {
namespace {

class SingleTurnEpisode : public Episode {
 public:
  explicit SingleTurnEpisode(const Prompt& prompt) : prompt_(prompt) {}

  absl::StatusOr<std::optional<Turn>> NextTurn(std::optional<Completion> last) override {
    if (!last.has_value()) return Turn{prompt_.token_ids, prompt_.text};
    completion_ = *std::move(last);
    return std::nullopt;
  }

  Completion Take() override { return std::move(completion_); }

 private:
  const Prompt& prompt_;
  Completion completion_;
};

}  // namespace

std::unique_ptr<Episode> MakeSingleTurnEpisode(const Prompt& prompt) {
  return std::make_unique<SingleTurnEpisode>(prompt);
}

}  // namespace tandem::driver
