#include "tools/tandem/driver/episodes.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/config/summary.h"
#include "common/io/json_text.h"
#include "tools/tandem/driver/multi_turn_episode.h"
#include "tools/tandem/environment/calculator.h"
#include "tools/tandem/environment/service_environment.h"

namespace tandem::driver {
namespace {

environment::v1::Reset ResetOf(const Prompt& prompt, const EpisodeNumber& number) {
  environment::v1::Reset out;
  out.set_row_json(io::JsonText(prompt.fields));
  out.set_prompt(prompt.text);
  out.mutable_prompt_token_ids()->Add(prompt.token_ids.begin(), prompt.token_ids.end());
  out.set_seed(number.seed);
  out.set_sample(number.sample);
  out.set_attempt(number.attempt);
  return out;
}

}  // namespace

Episodes::Episodes(const config::v1::RunConfig& config, const tokenizer::Tokenizer* tokenizer,
                   int64_t max_length)
    : config_(config.environment()),
      max_tokens_(config::LongestCompletion(config)),
      max_turn_tokens_(config.rollout().max_tokens()),
      max_length_(max_length),
      tokenizer_(tokenizer) {
  if (config_.name() == config::v1::ENVIRONMENT_NAME_SERVICE) {
    client_ = std::make_shared<environment::EnvironmentClient>(
        environment::EnvironmentClient::Options{.endpoint = config_.endpoint()});
  }
}

Episodes::~Episodes() {
  if (client_ != nullptr) client_->Shutdown();
}

absl::StatusOr<std::unique_ptr<Episodes>> Episodes::Create(const config::v1::RunConfig& config,
                                                           const tokenizer::Tokenizer* tokenizer,
                                                           int64_t max_length) {
  if (config.environment().name() == config::v1::ENVIRONMENT_NAME_CALCULATOR &&
      tokenizer == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat("environment.name: calculator reads text, but ", config.model().path(),
                     " has no tokenizer.json"));
  }
  return std::unique_ptr<Episodes>(new Episodes(config, tokenizer, max_length));
}

void Episodes::AddNeeds(RowNeeds& needs) const {
  switch (config_.name()) {
    case config::v1::ENVIRONMENT_NAME_CALCULATOR:
      needs.keeps_chat = true;
      needs.tools = environment::CalculatorTools();
      break;
    case config::v1::ENVIRONMENT_NAME_SERVICE:
      needs.keeps_chat = true;
      break;
    default:
      break;
  }
}

absl::Status Episodes::Check(absl::Duration timeout,
                             const std::function<bool()>& interrupted) const {
  if (client_ == nullptr) return absl::OkStatus();
  const absl::Status status = client_->Check(timeout, interrupted);
  if (status.ok() || absl::IsCancelled(status)) return status;
  return absl::Status(status.code(), absl::StrCat("environment: ", status.message()));
}

EpisodeFactory Episodes::factory() const {
  if (config_.name() != config::v1::ENVIRONMENT_NAME_CALCULATOR && client_ == nullptr) {
    return MakeSingleTurnEpisode;
  }
  const EpisodeLimits limits = {
      .max_turns = config_.max_turns(),
      .max_tokens = max_tokens_,
      .max_turn_tokens = max_turn_tokens_,
      .max_length = max_length_,
      .splits = config_.on_template_mismatch() == config::v1::ON_TEMPLATE_MISMATCH_SPLIT};
  return [client = client_, limits, tokenizer = tokenizer_,
          timeout = absl::Seconds(config_.timeout_s())](const Prompt& prompt,
                                                        const EpisodeNumber& number) {
    std::unique_ptr<environment::Environment> environment =
        client == nullptr
            ? environment::MakeCalculator(/*in_chat=*/prompt.chat.has_value())
            : environment::MakeServiceEnvironment(client, ResetOf(prompt, number), timeout);
    return MakeMultiTurnEpisode(prompt, std::move(environment), limits, tokenizer);
  };
}

void Episodes::AddMetrics(Metrics& metrics) const {
  if (client_ == nullptr) return;
  metrics["environment/broken_streams"] = static_cast<double>(client_->TakeBreaks());
}

}  // namespace tandem::driver
