#include "tools/tandem/driver/episode.h"

#include <utility>

namespace tandem::driver {
namespace {

class SingleTurnEpisode : public Episode {
 public:
  explicit SingleTurnEpisode(const Prompt& prompt) : prompt_(prompt) {}

  absl::StatusOr<Turn> FirstTurn() override {
    return Turn{.token_ids = prompt_.token_ids,
                .text = prompt_.text,
                .images = prompt_.images,
                .stop = {},
                .replica = ""};
  }

  bool Continue(Completion completion, std::function<void()> /*ready*/) override {
    completion_ = std::move(completion);
    return true;
  }

  absl::StatusOr<std::optional<Turn>> NextTurn() override { return std::nullopt; }

  Completion Take() override { return std::move(completion_); }

 private:
  const Prompt& prompt_;
  Completion completion_;
};

}  // namespace

std::unique_ptr<Episode> MakeSingleTurnEpisode(const Prompt& prompt,
                                               const EpisodeNumber& /*number*/) {
  return std::make_unique<SingleTurnEpisode>(prompt);
}

}  // namespace tandem::driver
