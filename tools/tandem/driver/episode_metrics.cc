#include "tools/tandem/driver/episode_metrics.h"

#include <algorithm>

namespace tandem::driver {

void AddEpisodeMetrics(const std::vector<Group>& groups, Metrics& metrics) {
  double episodes = 0, turns = 0, most_turns = 0, calls = 0, malformed = 0, observed = 0;
  double reward = 0, stopped = 0, rewritten = 0, seconds = 0, most_seconds = 0;
  double prompt_tokens = 0, cached_tokens = 0;
  for (const Group& group : groups) {
    for (const Completion& completion : group.completions) {
      const EpisodeFacts& facts = completion.facts;
      if (facts.num_turns == 0) continue;
      ++episodes;
      turns += static_cast<double>(facts.num_turns);
      most_turns = std::max(most_turns, static_cast<double>(facts.num_turns));
      calls += static_cast<double>(facts.num_tool_calls);
      malformed += static_cast<double>(facts.num_malformed_calls);
      prompt_tokens += static_cast<double>(facts.num_prompt_tokens);
      cached_tokens += static_cast<double>(facts.num_cached_tokens);
      seconds += facts.environment_seconds;
      most_seconds = std::max(most_seconds, facts.environment_seconds);
      stopped += completion.finish_reason == common::v1::FINISH_REASON_MAX_TURNS ? 1 : 0;
      for (const EpisodeSegment& segment : completion.segments) {
        reward += segment.reward;
        if (segment.kind == common::v1::SEGMENT_KIND_ENVIRONMENT) {
          observed += static_cast<double>(segment.num_tokens);
        }
        rewritten += segment.kind == common::v1::SEGMENT_KIND_PROMPT ? 1 : 0;
      }
      // An agent's first prompt rewrites nothing.
      const bool begins_itself = !completion.segments.empty() &&
                                 completion.segments[0].kind == common::v1::SEGMENT_KIND_PROMPT;
      rewritten -= begins_itself ? 1 : 0;
    }
  }
  if (episodes == 0) return;
  metrics["environment/turns/mean"] = turns / episodes;
  metrics["environment/turns/max"] = most_turns;
  metrics["environment/max_turns_ratio"] = stopped / episodes;
  metrics["environment/tool_calls/mean"] = calls / episodes;
  metrics["environment/malformed_tool_calls"] = malformed;
  metrics["environment/observation_tokens/mean"] = observed / episodes;
  metrics["environment/template_rewrites"] = rewritten;
  metrics["environment/reward/mean"] = reward / episodes;
  metrics["environment/wait_s/mean"] = seconds / episodes;
  metrics["environment/wait_s/max"] = most_seconds;
  if (prompt_tokens > 0) metrics["environment/cached_prompt_ratio"] = cached_tokens / prompt_tokens;
}

}  // namespace tandem::driver
