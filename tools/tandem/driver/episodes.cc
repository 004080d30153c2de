#include "tools/tandem/driver/episodes.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/config/summary.h"
#include "common/io/json_text.h"
#include "common/net/reserved_port.h"
#include "common/status/status_macros.h"
#include "tools/tandem/driver/agent_episode.h"
#include "tools/tandem/driver/multi_turn_episode.h"
#include "tools/tandem/driver/reward_parts.h"
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

bool TakesEnvironmentReward(const config::v1::RewardConfig& config) {
  const std::vector<RewardPart> parts = RewardParts(config);
  return std::any_of(parts.begin(), parts.end(),
                     [](const RewardPart& part) { return part.name == kEnvironmentReward; });
}

// The trainer has room for the longest prompt of the data and the longest completion; an agent writes
// prompts of its own.
int64_t LongestAgentSequence(const config::v1::RunConfig& config, int64_t max_length) {
  const int64_t planned = config.data().max_prompt_length() + config::LongestCompletion(config);
  return max_length > 0 ? std::min(planned, max_length) : planned;
}

}  // namespace

Episodes::Episodes(const config::v1::RunConfig& config, const tokenizer::Tokenizer* tokenizer,
                   int64_t max_length)
    : config_(config.environment()),
      max_tokens_(config::LongestCompletion(config)),
      max_turn_tokens_(config.rollout().max_tokens()),
      max_length_(max_length),
      max_agent_length_(LongestAgentSequence(config, max_length)),
      rewards_(TakesEnvironmentReward(config.reward())),
      tokenizer_(tokenizer),
      store_(config.run_dir() + "/images") {}

Episodes::~Episodes() { Shutdown(); }

void Episodes::Shutdown() {
  if (player_ != nullptr) player_->Stop();
  if (client_ != nullptr) client_->Shutdown();
  process_.reset();
}

absl::Status Episodes::MakeEnvironment() {
  if (config_.name() == config::v1::ENVIRONMENT_NAME_SERVICE) {
    endpoint_ = config_.endpoint();
    if (endpoint_.empty()) {
      ASSIGN_OR_RETURN(const int port, net::ReservePort());
      endpoint_ = absl::StrCat("127.0.0.1:", port);
    }
    client_ = std::make_shared<environment::EnvironmentClient>(
        environment::EnvironmentClient::Options{.endpoint = endpoint_});
  }
  if (config_.name() == config::v1::ENVIRONMENT_NAME_AGENT) {
    if (config_.url().empty()) {
      program_ = environment::MakeAgentCommand(config_.command());
    } else {
      ASSIGN_OR_RETURN(program_, environment::MakeAgentServer(config_.url()));
    }
    player_ = std::make_unique<AgentPlayer>(
        AgentPlayer::Options{.program = program_,
                             .max_concurrent = config_.max_concurrent(),
                             .timeout = absl::Seconds(config_.timeout_s())});
  }
  return absl::OkStatus();
}

absl::Status Episodes::ReadModel(const std::string& folder) {
  if (config_.name() != config::v1::ENVIRONMENT_NAME_SERVICE &&
      config_.name() != config::v1::ENVIRONMENT_NAME_CALCULATOR) {
    return absl::OkStatus();
  }
  std::error_code ignored;  // who needs the folder says what it lacks
  if (!std::filesystem::exists(folder + "/config.json", ignored)) return absl::OkStatus();
  ASSIGN_OR_RETURN(images_, ImageReader::Create(folder, tokenizer_));
  return absl::OkStatus();
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
  std::unique_ptr<Episodes> episodes(new Episodes(config, tokenizer, max_length));
  RETURN_IF_ERROR(episodes->MakeEnvironment());
  RETURN_IF_ERROR(episodes->ReadModel(config.model().path()));
  return episodes;
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
  if (program_ != nullptr) return program_->Check();
  if (client_ == nullptr) return absl::OkStatus();
  if (!config_.command().empty() && process_ == nullptr) {
    return environment::CheckCommand(config_.command());
  }
  const absl::Status status = client_->Check(timeout, interrupted);
  if (status.ok() || absl::IsCancelled(status)) return status;
  absl::Status ended = process_ == nullptr ? absl::OkStatus() : process_->last_end();
  return absl::Status(status.code(),
                      absl::StrCat("environment: ", status.message(), ended.ok() ? "" : "; ",
                                   ended.ok() ? "" : ended.message()));
}

absl::Status Episodes::Start(const std::string& log_folder, absl::Duration timeout,
                             const std::function<bool()>& interrupted) {
  if (client_ == nullptr || config_.command().empty()) return absl::OkStatus();
  std::error_code ignored;  // the process's start reports a folder that is not there
  std::filesystem::create_directories(log_folder, ignored);
  ASSIGN_OR_RETURN(
      process_, environment::ServiceProcess::Start({.command = config_.command(),
                                                    .endpoint = endpoint_,
                                                    .log_path = log_folder + "/environment.log"}));
  return Check(timeout, interrupted);
}

EpisodeFactory Episodes::AgentFactory(RolloutFleet* fleet, bool returns_experts) const {
  const AgentLimits limits = {.max_tokens = max_tokens_,
                              .max_length = max_agent_length_,
                              .gives_reward = rewards_,
                              .store = &store_,
                              .returns_experts = returns_experts};
  return
      [limits, player = player_.get(), fleet](const Prompt& prompt, const EpisodeNumber& number) {
        return MakeAgentEpisode(prompt, number, limits, *player, *fleet);
      };
}

EpisodeFactory Episodes::factory(RolloutFleet* fleet, bool returns_experts) const {
  if (player_ != nullptr) return AgentFactory(fleet, returns_experts);
  if (config_.name() != config::v1::ENVIRONMENT_NAME_CALCULATOR && client_ == nullptr) {
    return MakeSingleTurnEpisode;
  }
  const EpisodeLimits limits = {
      .max_turns = config_.max_turns(),
      .max_tokens = max_tokens_,
      .max_turn_tokens = max_turn_tokens_,
      .max_length = max_length_,
      .splits = config_.on_template_mismatch() == config::v1::ON_TEMPLATE_MISMATCH_SPLIT};
  const EpisodeSight sight = {.reader = images_.get(), .store = &store_};
  return [client = client_, limits, sight, tokenizer = tokenizer_,
          timeout = absl::Seconds(config_.timeout_s())](const Prompt& prompt,
                                                        const EpisodeNumber& number) {
    std::unique_ptr<environment::Environment> environment =
        client == nullptr
            ? environment::MakeCalculator(/*in_chat=*/prompt.chat.has_value())
            : environment::MakeServiceEnvironment(client, ResetOf(prompt, number), timeout);
    return MakeMultiTurnEpisode(prompt, std::move(environment), limits, tokenizer, sight);
  };
}

void Episodes::AddMetrics(Metrics& metrics) const {
  if (client_ == nullptr) return;
  metrics["environment/broken_streams"] = static_cast<double>(client_->TakeBreaks());
}

}  // namespace tandem::driver
