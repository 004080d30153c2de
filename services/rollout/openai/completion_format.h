// CompletionFormat: converts the engine's chunks to OpenAI API objects, complete or as stream
// events.
#ifndef TANDEM_SERVICES_ROLLOUT_OPENAI_COMPLETION_FORMAT_H_
#define TANDEM_SERVICES_ROLLOUT_OPENAI_COMPLETION_FORMAT_H_

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "common/tokenizer/tokenizer.h"
#include "services/rollout/engine/generation.h"
#include "services/rollout/openai/completion_request.h"

namespace tandem::rollout::openai {

// Serves one request; all arguments must outlive it. Choice i is sample i % n of prompt i / n. Used
// by one thread.
class CompletionFormat {
 public:
  // `tokenizer` may be null. `scores`: the prompts' scores if the request echoes them with
  // log-probs; else empty. `policy_version` and `incarnation` are the live ones, reported until the
  // first tokens bring their own.
  CompletionFormat(const CompletionRequest& request, const tokenizer::Tokenizer* tokenizer,
                   std::string model, std::vector<ScoreResult> scores, int64_t policy_version,
                   int64_t incarnation = 0);

  // The complete response, from one complete chunk per choice.
  nlohmann::ordered_json Whole(const std::vector<SampleChunk>& chunks);

  // An event with a choice's new tokens; nullopt if there is nothing to send yet.
  std::optional<nlohmann::ordered_json> Event(const SampleChunk& chunk);
  // The final usage event, for requests with include_usage.
  nlohmann::ordered_json UsageEvent() const;

  // Version of the weights that sampled the newest token.
  int64_t policy_version() const { return policy_version_; }
  // Trainer that published it; 0: none.
  int64_t incarnation() const { return incarnation_; }

 private:
  struct ChoiceState {
    bool begun = false;
    std::optional<tokenizer::IncrementalDecoder> decoder;
    int64_t offset = 0;  // characters so far
  };

  nlohmann::ordered_json Head(const char* object) const;
  nlohmann::ordered_json Choice(const SampleChunk& chunk, bool whole);
  nlohmann::ordered_json Logprobs(const SampleChunk& chunk, bool echoes, ChoiceState& state);
  nlohmann::ordered_json ChatLogprobs(const SampleChunk& chunk) const;
  nlohmann::ordered_json Usage() const;
  std::string Name(int32_t id) const;
  // Adds a chunk to the usage counts.
  void Count(const SampleChunk& chunk);

  const CompletionRequest& request_;
  const tokenizer::Tokenizer* const tokenizer_;
  const std::string model_;
  const std::vector<ScoreResult> scores_;
  const std::string id_;
  const int64_t created_;
  int64_t policy_version_;
  int64_t incarnation_;
  int64_t num_prompt_tokens_ = 0;
  int64_t num_cached_tokens_ = 0;
  int64_t num_completion_tokens_ = 0;
  std::map<int32_t, ChoiceState> choices_;
};

}  // namespace tandem::rollout::openai

#endif  // TANDEM_SERVICES_ROLLOUT_OPENAI_COMPLETION_FORMAT_H_
