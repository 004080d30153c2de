// The token sequences of a completion: one, or, where a chat template rewrote the past of an episode,
// several, each of which is a sample of its own.
//
//   for (const EpisodeSequence& sequence : SequencesOf(prompt.token_ids, completion, prompt.images)) {
//     Write(sequence);
//   }
#ifndef TANDEM_TOOLS_TANDEM_DRIVER_EPISODE_SEQUENCES_H_
#define TANDEM_TOOLS_TANDEM_DRIVER_EPISODE_SEQUENCES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "tools/tandem/driver/completion.h"

namespace tandem::driver {

// A run of tokens: sampled, or an observation.
struct SequencePart {
  bool is_sampled = true;
  std::vector<uint32_t> token_ids;
  double reward = 0;  // what the environment gave; sampled parts only
  // Of sampled parts only, one for each token, or none.
  std::vector<float> logprobs;
  std::vector<float> teacher_logprobs;
  // As many for each token.
  std::vector<uint32_t> teacher_top_ids;
  std::vector<float> teacher_top_logprobs;
  std::vector<double> token_rewards;
  std::vector<common::v1::VersionSpan> version_spans;  // counted from the part's first token
  std::string routed_experts;            // of every part; empty if unknown (completion_experts.h)
  std::vector<PromptImage> images = {};  // of observations
};

struct EpisodeSequence {
  std::vector<uint32_t> prompt_ids;
  std::string prompt_experts;
  std::vector<SequencePart> parts;
  std::vector<PromptImage> prompt_images = {};

  // Those of the prompt, then those of the parts.
  std::vector<PromptImage> images() const;
};

// Whether the completion begins with a segment of kind prompt, as those of agents do: it has its own
// prompts only, whose tokens are tokens of the completion.
bool BeginsWithItsPrompt(const Completion& completion);

// Parts without tokens are left out, but for the only part of a completion of one turn. The rewards of
// an observation's tokens pass to the sampled token before them. `prompt_images`: of prompt_ids.
std::vector<EpisodeSequence> SequencesOf(const std::vector<uint32_t>& prompt_ids,
                                         const Completion& completion,
                                         const std::vector<PromptImage>& prompt_images = {});

}  // namespace tandem::driver

#endif  // TANDEM_TOOLS_TANDEM_DRIVER_EPISODE_SEQUENCES_H_
