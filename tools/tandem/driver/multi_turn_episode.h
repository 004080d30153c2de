// An episode of several turns with an environment. The tokens of a turn stay as they were sampled;
// what the environment says is tokenized and appended (common/tokenizer/observation_text.h says how), so
// the prompt of a turn is all ids so far and the rollout finds most of them in its cache.
#ifndef TANDEM_TOOLS_TANDEM_DRIVER_MULTI_TURN_EPISODE_H_
#define TANDEM_TOOLS_TANDEM_DRIVER_MULTI_TURN_EPISODE_H_

#include <cstdint>
#include <memory>

#include "common/tokenizer/tokenizer.h"
#include "tools/tandem/driver/episode.h"
#include "tools/tandem/driver/image_reader.h"
#include "tools/tandem/driver/image_store.h"
#include "tools/tandem/environment/environment.h"

namespace tandem::driver {

struct EpisodeLimits {
  int64_t max_turns = 1;
  int64_t max_tokens = 1;       // after the prompt
  int64_t max_turn_tokens = 1;  // of one request
  int64_t max_length = 0;       // of a sequence, its prompt included; 0: no limit
  // A template that rewrites the past begins a new sequence; otherwise it is an error.
  bool splits = false;
};

// How an episode sees images. Outlives it.
struct EpisodeSight {
  const ImageReader* reader = nullptr;  // null: the model sees none
  const ImageStore* store = nullptr;    // keeps what the environment shows; set with `reader`
};

// `tokenizer` may be null for environments that answer with tokens only. It and the prompt outlive
// the episode. The episode ends
//   - when the environment says so, or has nothing to say: with the finish reason of the last turn;
//   - with FINISH_REASON_LENGTH, when the limit of tokens cuts a turn, or leaves no room after an
//     observation, which is then left out;
//   - with FINISH_REASON_MAX_TURNS, when the environment would go on after the last turn.
// Errors of NextTurn(): those of the environment; INVALID_ARGUMENT if the template rewrites the past
// and the episode does not split, and for images that the model or a request cannot take.
std::unique_ptr<Episode> MakeMultiTurnEpisode(const Prompt& prompt,
                                              std::unique_ptr<environment::Environment> environment,
                                              const EpisodeLimits& limits,
                                              const tokenizer::Tokenizer* tokenizer,
                                              const EpisodeSight& sight = {});

}  // namespace tandem::driver

#endif  // TANDEM_TOOLS_TANDEM_DRIVER_MULTI_TURN_EPISODE_H_
