// AnswerFormat: converts the engine's chunks to a route's JSON objects, complete or as stream
// events.
#ifndef TANDEM_SERVICES_ROLLOUT_OPENAI_ANSWER_FORMAT_H_
#define TANDEM_SERVICES_ROLLOUT_OPENAI_ANSWER_FORMAT_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <vector>

#include "services/rollout/engine/generation.h"
#include "services/rollout/openai/completion_request.h"

namespace tandem::rollout::openai {

// Serves one request, which must outlive it. Choice i is sample i % n of prompt i / n. Used by one
// thread.
class AnswerFormat {
 public:
  // `policy_version` and `incarnation` are the live ones, reported until the first tokens bring their
  // own.
  AnswerFormat(const CompletionRequest& request, int64_t policy_version, int64_t incarnation);
  virtual ~AnswerFormat() = default;

  // The complete response, from one complete chunk per choice.
  virtual nlohmann::ordered_json Whole(const std::vector<SampleChunk>& chunks) = 0;

  // The events with a choice's new tokens; none if there is nothing to send yet.
  virtual std::vector<nlohmann::ordered_json> Events(const SampleChunk& chunk) = 0;
  // The final usage event, for requests with include_usage.
  virtual nlohmann::ordered_json UsageEvent() const = 0;

  // Version of the weights that sampled the newest token.
  int64_t policy_version() const { return policy_version_; }
  // Trainer that published it; 0: none.
  int64_t incarnation() const { return incarnation_; }

 protected:
  // Adds a chunk to the usage counts.
  void Count(const SampleChunk& chunk);
  nlohmann::ordered_json Usage() const;
  // The log-probs of the chunk's tokens that the request wants.
  const std::vector<float>& LogprobsOf(const SampleChunk& chunk) const {
    return request_.processed_logprobs ? chunk.processed_logprobs : chunk.logprobs;
  }

  const CompletionRequest& request_;

 private:
  int64_t policy_version_;
  int64_t incarnation_;
  int64_t num_prompt_tokens_ = 0;
  int64_t num_cached_tokens_ = 0;
  int64_t num_completion_tokens_ = 0;
};

// OpenAI's names; null for kNone.
nlohmann::ordered_json NameOf(FinishReason reason);

}  // namespace tandem::rollout::openai

#endif  // TANDEM_SERVICES_ROLLOUT_OPENAI_ANSWER_FORMAT_H_
