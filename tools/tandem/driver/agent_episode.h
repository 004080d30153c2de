// An episode that an agent program plays by itself, on the rollout's OpenAI endpoint.
#ifndef TANDEM_TOOLS_TANDEM_DRIVER_AGENT_EPISODE_H_
#define TANDEM_TOOLS_TANDEM_DRIVER_AGENT_EPISODE_H_

#include <cstdint>
#include <memory>

#include "tools/tandem/driver/agent_player.h"
#include "tools/tandem/driver/episode.h"
#include "tools/tandem/driver/image_store.h"

namespace tandem::driver {

struct AgentLimits {
  int64_t max_tokens = 1;  // sampled in an episode
  int64_t max_length = 0;  // of a sequence, its prompt included; 0: no limit
  // The run's reward is the agent's; otherwise the agent must give none.
  bool gives_reward = false;
  // Keeps the images of the agent's chats, and outlives the episodes.
  const ImageStore* store = nullptr;
  bool returns_experts = false;  // of all tokens (completion_experts.h)
};

// `player`, `fleet` and the prompt outlive the episode's play. Errors of NextTurn(): MayPlayAgain()
// for the first program of a sample that fails, DropEpisode() for the second; without a mark if no
// rollout records sessions, or for a reward that nobody asked for.
std::unique_ptr<Episode> MakeAgentEpisode(const Prompt& prompt, const EpisodeNumber& number,
                                          const AgentLimits& limits, AgentPlayer& player,
                                          RolloutFleet& fleet);

}  // namespace tandem::driver

#endif  // TANDEM_TOOLS_TANDEM_DRIVER_AGENT_EPISODE_H_
