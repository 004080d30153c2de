// Episode: how one sample of a prompt comes about, turn by turn. The policy continues what the
// episode asks for; the episode, which stands for the environment, reads the completion and asks
// for the next turn, or ends.
//
//   std::unique_ptr<Episode> episode = MakeSingleTurnEpisode(prompt);
//   ASSIGN_OR_RETURN(std::optional<Turn> turn, episode->NextTurn(std::nullopt));
//   Completion completion = Sample(*turn);
//   ASSIGN_OR_RETURN(turn, episode->NextTurn(std::move(completion)));  // nullopt: it has ended
//   const Completion sample = episode->Take();
#ifndef TANDEM_TOOLS_TANDEM_DRIVER_EPISODE_H_
#define TANDEM_TOOLS_TANDEM_DRIVER_EPISODE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/tandem/driver/completion.h"

namespace tandem::driver {

// The text that the policy continues: everything so far in the episode.
struct Turn {
  std::vector<uint32_t> token_ids;  // empty: the rollout tokenizes `text`
  std::string text;

  friend bool operator==(const Turn&, const Turn&) = default;
};

// Used by one thread at a time.
class Episode {
 public:
  virtual ~Episode() = default;

  // Returns the next turn, or nullopt if the episode has ended. `last` is the policy's completion
  // of the turn before; unset in the first call. The first turn follows from the prompt alone,
  // without a wait, and is the same for all episodes of a group: their samples share its
  // computation. Later calls may wait for an environment, up to a deadline of their own.
  virtual absl::StatusOr<std::optional<Turn>> NextTurn(std::optional<Completion> last) = 0;

  // Returns what is judged and trained on. Call once, after the end.
  virtual Completion Take() = 0;
};

// Makes one episode of a prompt. Thread-safe; the prompt outlives the episode.
using EpisodeFactory = std::function<std::unique_ptr<Episode>(const Prompt& prompt)>;

// The prompt is the first turn and the only one.
std::unique_ptr<Episode> MakeSingleTurnEpisode(const Prompt& prompt);

}  // namespace tandem::driver

#endif  // TANDEM_TOOLS_TANDEM_DRIVER_EPISODE_H_
