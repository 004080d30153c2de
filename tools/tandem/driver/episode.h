// Episode: how one sample of a prompt comes about, turn by turn. The policy continues what the
// episode asks for; the episode, which asks the environment, reads the completion and asks for the
// next turn, or ends.
//
//   std::unique_ptr<Episode> episode = MakeSingleTurnEpisode(prompt);
//   ASSIGN_OR_RETURN(std::optional<Turn> turn, episode->FirstTurn());
//   while (turn.has_value()) {
//     const bool is_ready = episode->Continue(Sample(*turn), Wake);
//     if (!is_ready) WaitUntilWoken();
//     ASSIGN_OR_RETURN(turn, episode->NextTurn());
//   }
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
#include "tandem/rollout/v1/sampling.pb.h"
#include "tools/tandem/driver/completion.h"

namespace tandem::driver {

// The text that the policy continues: everything so far in the episode.
struct Turn {
  std::vector<uint32_t> token_ids;  // empty: the rollout tokenizes `text`
  std::string text;
  std::vector<PromptImage> images = {};  // of token_ids
  int64_t max_tokens = 0;                // 0: rollout.max_tokens
  std::vector<std::string> stop;         // strings that end the turn, besides rollout.stop
  std::string replica;                   // whose cache may hold the tokens; empty: any

  friend bool operator==(const Turn&, const Turn&) = default;
};

// Used by one thread at a time.
class Episode {
 public:
  virtual ~Episode() = default;

  // Returns the first turn. It follows from the prompt alone, without a wait, and is the same for all
  // episodes of a group: their samples share its computation. Call once.
  virtual absl::StatusOr<Turn> FirstTurn() = 0;

  // Takes the policy's completion of the turn. Returns true if NextTurn() may be called at once;
  // otherwise calls `ready` once, later, from any thread, within a deadline of its own: no thread
  // waits for an environment.
  virtual bool Continue(Completion completion, std::function<void()> ready) = 0;

  // Returns the next turn, or nullopt if the episode has ended. environment::LossOf() says which
  // errors lose this episode only.
  virtual absl::StatusOr<std::optional<Turn>> NextTurn() = 0;

  // Returns what is judged and trained on. Call once, after the end.
  virtual Completion Take() = 0;

  // An episode that plays itself makes no requests here: Play() comes in place of FirstTurn() and
  // Continue(). It begins the episode, with a seed of its own in `sampling`, and returns what cuts it
  // off; `ready` is called as by Continue(), and NextTurn() then returns nullopt or the error.
  virtual bool plays_itself() const { return false; }
  virtual std::function<void()> Play(const rollout::v1::SamplingParams& /*sampling*/,
                                     std::function<void()> /*ready*/) {
    return nullptr;
  }
  // The tokens that it has sampled, once it is ready.
  virtual int64_t num_played_tokens() const { return 0; }
};

// Tells the environment which episode it is.
struct EpisodeNumber {
  uint64_t seed = 0;    // for the environment's randomness; the same for all of a group
  int64_t sample = 0;   // of the group; the baseline's is the last
  int64_t attempt = 0;  // counted from 0
};

// Makes one episode of a prompt. Thread-safe; the prompt outlives the episode.
using EpisodeFactory =
    std::function<std::unique_ptr<Episode>(const Prompt& prompt, const EpisodeNumber& number)>;

// The prompt is the first turn and the only one.
std::unique_ptr<Episode> MakeSingleTurnEpisode(const Prompt& prompt,
                                               const EpisodeNumber& number = {});

}  // namespace tandem::driver

#endif  // TANDEM_TOOLS_TANDEM_DRIVER_EPISODE_H_
