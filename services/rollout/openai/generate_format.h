// GenerateFormat: the answers of /inference/v1/generate.
#ifndef TANDEM_SERVICES_ROLLOUT_OPENAI_GENERATE_FORMAT_H_
#define TANDEM_SERVICES_ROLLOUT_OPENAI_GENERATE_FORMAT_H_

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "services/rollout/openai/answer_format.h"

namespace tandem::rollout::openai {

// {"request_id", "choices": [{"index", "token_ids", "logprobs", "finish_reason", "stop_reason",
// "weight_versions"}], "usage"}. Events are the same with new tokens only, and without usage.
class GenerateFormat final : public AnswerFormat {
 public:
  GenerateFormat(const CompletionRequest& request, std::string model, int64_t policy_version,
                 int64_t incarnation);

  nlohmann::ordered_json Whole(const std::vector<SampleChunk>& chunks) override;
  std::vector<nlohmann::ordered_json> Events(const SampleChunk& chunk) override;
  nlohmann::ordered_json UsageEvent() const override;

 private:
  nlohmann::ordered_json Head() const;
  nlohmann::ordered_json Choice(const SampleChunk& chunk) const;

  const std::string model_;
};

}  // namespace tandem::rollout::openai

#endif  // TANDEM_SERVICES_ROLLOUT_OPENAI_GENERATE_FORMAT_H_
