// The driver's data types: a prompt of the data set, its completions, and their rewards.
#ifndef TANDEM_TOOLS_TANDEM_DRIVER_COMPLETION_H_
#define TANDEM_TOOLS_TANDEM_DRIVER_COMPLETION_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "nlohmann/json.hpp"
#include "tandem/common/v1/sample.pb.h"
#include "tools/tandem/driver/prompt_image.h"

namespace tandem::driver {

// Tokens that are either trained on or given.
struct TokenRun {
  std::vector<uint32_t> token_ids;
  bool is_trained = false;
  // The next so many of the prompt's images, counted from the sequence's first token, lie in it.
  size_t num_images = 0;
};

// A sequence that the data set gives whole: prompt and completion, over several turns.
using GivenSequence = std::vector<TokenRun>;

// What the chat template rendered a prompt from, for later turns of an episode.
struct ChatPrompt {
  nlohmann::ordered_json messages;
  nlohmann::ordered_json tools;      // schemas, or null
  nlohmann::ordered_json variables;  // of the template, or null
};

// Bytes [begin, end) of a text, perhaps none.
struct TextPlace {
  int64_t begin = 0;
  int64_t end = 0;

  friend bool operator==(const TextPlace&, const TextPlace&) = default;
};

struct Prompt {
  int64_t row = 0;                  // line of the data set, from 0, over all files
  std::vector<uint32_t> token_ids;  // what the model sees; empty: the rollout tokenises `text`
  std::string text;                 // rendered; empty if the row gave ids
  // In the order of their placeholders, of which token_ids has as many as the model sees of each.
  std::vector<PromptImage> images;
  std::string image_placeholder;  // stands for each of them in texts; empty without images
  std::string answer;
  nlohmann::json fields;  // the whole row
  // Supervised training: the row's sequences. Preferences: the chosen and the rejected one.
  std::vector<GivenSequence> given;
  // Set if the chat template rendered the prompt and the run needs the messages (RowNeeds).
  std::optional<ChatPrompt> chat;
};

// A run of a completion's tokens of one origin, in an episode of several turns.
struct EpisodeSegment {
  // Sampled: a turn of the policy, or a part of one. Prompt: the conversation so far, where the chat
  // template or an agent wrote it again, which begins a new sequence.
  common::v1::SegmentKind kind = common::v1::SEGMENT_KIND_SAMPLED;
  int64_t num_tokens = 0;
  double reward = 0;  // what the environment gave; sampled ones only
  // One for each run of placeholders in its tokens, in order; never of a sampled one.
  std::vector<PromptImage> images = {};
  // What each of them replaces in Completion.text for a reader who sees it; begins at -1 if the text
  // shows it elsewhere already. Empty: their places are not known.
  std::vector<TextPlace> image_places = {};

  friend bool operator==(const EpisodeSegment&, const EpisodeSegment&) = default;
};

// Counts of an episode of several turns, for metrics.
struct EpisodeFacts {
  int64_t num_turns = 0;  // 0: no episode
  int64_t num_tool_calls = 0;
  int64_t num_malformed_calls = 0;
  // Of the requests after the first: tokens of their prompts, and those found in the cache.
  int64_t num_prompt_tokens = 0;
  int64_t num_cached_tokens = 0;
  double environment_seconds = 0;  // waited for the environment
};

struct Completion {
  // Sampled, the stop id included; in an episode all that follows the prompt. The lists beside it are
  // as long, with 0 for tokens that were not sampled, and version_spans leave these out.
  std::vector<uint32_t> token_ids;
  std::vector<float> logprobs;            // raw: from the unscaled logits
  std::vector<float> processed_logprobs;  // from logits / temperature: training compares with these
  // From the teacher, at the sampling temperature; empty: there is none.
  std::vector<float> teacher_logprobs;
  // With teacher.top_k: the teacher's likeliest tokens in each token's place, the likeliest first, and
  // their log-probs; as many for each.
  std::vector<uint32_t> teacher_top_ids;
  std::vector<float> teacher_top_logprobs;
  std::string text;
  common::v1::FinishReason finish_reason = common::v1::FINISH_REASON_UNSPECIFIED;
  std::vector<common::v1::VersionSpan> version_spans;
  // Of reward.rewards, by label. A reward that does not apply to the row is in neither.
  std::map<std::string, double> part_scores;  // unweighted
  std::map<std::string, double> part_weights;
  double score = 0;   // from the rewarder
  double reward = 0;  // trained on: the score plus the overlong penalty
  // The part of the score that each token earned, from the rewarder; empty: all of it on the last.
  std::vector<double> token_rewards;
  // The origins of token_ids, in order; empty: all were sampled in one turn.
  std::vector<EpisodeSegment> segments;
  EpisodeFacts facts;
  // Of the request that sampled it.
  int64_t num_prompt_tokens = 0;
  int64_t num_cached_tokens = 0;
  std::string replica;  // its id
  // If the rollouts return them (completion_experts.h): the experts of token_ids, those of the last
  // ones perhaps missing while they arrive, and of the prompt.
  std::string routed_experts;
  std::string prompt_routed_experts;
};

// "stop", "length", "max_turns" or "aborted", as in the run's files.
inline const char* FinishReasonName(common::v1::FinishReason reason) {
  switch (reason) {
    case common::v1::FINISH_REASON_STOP:
      return "stop";
    case common::v1::FINISH_REASON_LENGTH:
      return "length";
    case common::v1::FINISH_REASON_MAX_TURNS:
      return "max_turns";
    default:
      return "aborted";
  }
}

// A prompt and all its completions. Only complete groups train; the others are dropped.
struct Group {
  Prompt prompt;
  std::vector<Completion> completions;
  // The greedy completion: a baseline that is judged, not trained on. Unset unless requested.
  std::optional<Completion> baseline;
  // Why a completion has no reward: its judge or reward model failed. Such a group does not train.
  absl::Status judgement;
  int64_t num_failed_judgements = 0;
  // Add this to its version numbers to get the current ones: a trainer that loads a checkpoint
  // renumbers its versions.
  int64_t version_shift = 0;

  // The oldest version that sampled one of its tokens, in current numbers, but at most `otherwise`.
  int64_t oldest_version(int64_t otherwise) const {
    int64_t oldest = otherwise - version_shift;
    for (const Completion& completion : completions) {
      for (const auto& span : completion.version_spans) {
        oldest = std::min<int64_t>(oldest, span.policy_version());
      }
    }
    return oldest + version_shift;
  }

  // The completions and the baseline: everything that is judged.
  std::vector<Completion*> judged() {
    std::vector<Completion*> out;
    for (Completion& completion : completions) out.push_back(&completion);
    if (baseline.has_value()) out.push_back(&*baseline);
    return out;
  }

  // Whether a completion or the baseline was aborted.
  bool aborted() const {
    const auto ended = [](const Completion& completion) {
      return completion.finish_reason == common::v1::FINISH_REASON_ABORTED;
    };
    return std::any_of(completions.begin(), completions.end(), ended) ||
           (baseline.has_value() && ended(*baseline));
  }

  double mean_reward() const {
    double sum = 0;
    for (const Completion& completion : completions) sum += completion.reward;
    return completions.empty() ? 0 : sum / static_cast<double>(completions.size());
  }
};

}  // namespace tandem::driver

#endif  // TANDEM_TOOLS_TANDEM_DRIVER_COMPLETION_H_
