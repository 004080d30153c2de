#include "tools/tandem/driver/model_reward.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/config/summary.h"
#include "common/io/model_config.h"
#include "common/io/model_folder.h"
#include "common/io/read_file.h"
#include "common/model/reward_model_spec.h"
#include "common/rewards/reward_range.h"
#include "common/status/status_macros.h"

namespace tandem::driver {
namespace {

absl::StatusOr<bool> HasTokenizerOf(const std::string& policy, const std::string& model) {
  constexpr char kFile[] = "/tokenizer.json";
  std::error_code error;
  // A folder without one has the tokens of the model that it began from.
  if (!std::filesystem::exists(model + kFile, error)) return true;
  if (!std::filesystem::exists(policy + kFile, error)) return false;
  ASSIGN_OR_RETURN(const std::string of_policy, io::DigestFile(policy + kFile));
  ASSIGN_OR_RETURN(const std::string of_model, io::DigestFile(model + kFile));
  return of_policy == of_model;
}

}  // namespace

ModelReward::ModelReward(const config::v1::RewardModelConfig& model, absl::Duration timeout,
                         std::function<bool()> interrupted)
    : endpoint_(model.endpoint()),
      path_to_serve_(model.endpoint().empty() ? model.path() : ""),
      timeout_(timeout),
      interrupted_(std::move(interrupted)) {}

absl::StatusOr<std::unique_ptr<ModelReward>> ModelReward::Create(
    const config::v1::RunConfig& config, const config::v1::RewardModelConfig& model,
    std::function<bool()> interrupted) {
  std::unique_ptr<ModelReward> reward(
      new ModelReward(model, absl::Seconds(config.reward().timeout_s()), std::move(interrupted)));
  reward->longest_ = config.data().max_prompt_length() + config::LongestCompletion(config);
  ASSIGN_OR_RETURN(const io::ModelConfig policy, io::ReadModelConfig(config.model().path()));
  ASSIGN_OR_RETURN(const model::ModelSpec spec, model::ParseModelSpec(policy.json, policy.path));
  reward->policy_vocab_size_ = spec.vocab_size;
  if (!model.path().empty()) {
    RETURN_IF_ERROR(reward->ReadFolder(config, model.path()));
  }
  return reward;
}

absl::StatusOr<std::unique_ptr<ModelReward>> ModelReward::CreateForTexts(
    const config::v1::RewardModelConfig& model, absl::Duration timeout,
    std::function<bool()> interrupted) {
  std::unique_ptr<ModelReward> reward(new ModelReward(model, timeout, std::move(interrupted)));
  if (model.path().empty()) return reward;
  RETURN_IF_ERROR(reward->ReadModel(model.path()));
  std::error_code error;
  if (std::filesystem::exists(model.path() + "/tokenizer.json", error)) {
    ASSIGN_OR_RETURN(reward->tokenizer_, tokenizer::Tokenizer::Load(model.path()));
  }
  return reward;
}

// Checks that the folder is one of a reward model.
absl::Status ModelReward::ReadModel(const std::string& path) const {
  ASSIGN_OR_RETURN(const io::ModelConfig folder, io::ReadModelConfig(path));
  RETURN_IF_ERROR(model::ParseRewardModelSpec(folder.json, folder.path).status());
  if (path_to_serve_.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const io::ModelFolder weights, io::ModelFolder::Open(path));
  return model::CheckRewardHead(weights);
}

absl::Status ModelReward::ReadFolder(const config::v1::RunConfig& config, const std::string& path) {
  RETURN_IF_ERROR(ReadModel(path));
  ASSIGN_OR_RETURN(const bool is_same, HasTokenizerOf(config.model().path(), path));
  if (is_same) return absl::OkStatus();
  if (config::PlaysEpisodes(config)) {
    return absl::FailedPreconditionError(absl::StrCat(
        path, " has another tokenizer than ", config.model().path(),
        ", and episodes of several turns (environment.name) are not rendered for it; use a reward "
        "model with the policy's tokenizer.json"));
  }
  ASSIGN_OR_RETURN(tokenizer_, tokenizer::Tokenizer::Load(path));
  if (config.data().chat_template() && !tokenizer_->has_chat_template()) {
    return absl::FailedPreconditionError(absl::StrCat(
        path, " has another tokenizer than ", config.model().path(),
        " and no chat template, which data.chat_template asks for; add its chat_template.jinja"));
  }
  return absl::OkStatus();
}

absl::Status ModelReward::Check(absl::Duration timeout, const std::function<bool()>& interrupted) {
  if (endpoint_.empty()) return absl::OkStatus();
  return Connect(
      absl::StrCat("the reward model at ", endpoint_), [endpoint = endpoint_] { return endpoint; },
      timeout, interrupted);
}

absl::Status ModelReward::Connect(const std::string& name, std::function<std::string()> address,
                                  absl::Duration timeout,
                                  const std::function<bool()>& interrupted) {
  auto client = std::make_unique<ScoreClient>(ScoreClient::Options{
      .name = name,
      .address = std::move(address),
      .timeout = timeout_,
      .timeout_key = "reward.timeout_s",
      .interrupted = interrupted_,
  });
  ASSIGN_OR_RETURN(const rollout::v1::GetServerInfoResponse info,
                   client->GetServerInfo(timeout, interrupted));
  if (!model::IsRewardArchitecture(info.architecture())) {
    return absl::FailedPreconditionError(absl::StrCat(
        name, ": its rollout serves ", info.architecture(),
        ", expected a reward model (...ForSequenceClassification); correct the endpoint"));
  }
  if (tokenizer_ == nullptr && info.vocab_size() < policy_vocab_size_) {
    return absl::FailedPreconditionError(absl::StrCat(
        name, " has ", info.vocab_size(), " tokens, the policy ", policy_vocab_size_,
        ": it has another tokenizer; state its folder too (model.path), so that texts are rendered "
        "for it"));
  }
  if (tokenizer_ == nullptr && info.max_model_len() < longest_) {
    return absl::FailedPreconditionError(
        absl::StrCat(name, " takes ", info.max_model_len(),
                     " tokens, but data.max_prompt_length and the longest completion are ",
                     longest_, "; lower them, or raise rollout.max_model_len of the reward model"));
  }
  client_ = std::move(client);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<uint32_t>> ModelReward::IdsOf(const Judged& judged) const {
  const auto& [prompt, completion] = judged;
  const bool has_images =
      !prompt->images.empty() ||
      std::any_of(completion->segments.begin(), completion->segments.end(),
                  [](const EpisodeSegment& segment) { return !segment.images.empty(); });
  if (has_images) {
    return absl::UnimplementedError(
        "it has pictures, of its own or from the environment, and a reward model sees none; use "
        "another reward, such as a judge with judge.images=true");
  }
  if (tokenizer_ == nullptr) {
    std::vector<uint32_t> ids = prompt->token_ids;
    ids.insert(ids.end(), completion->token_ids.begin(), completion->token_ids.end());
    return ids;
  }
  return Render(*prompt, *completion);
}

absl::StatusOr<std::vector<uint32_t>> ModelReward::Render(const Prompt& prompt,
                                                          const Completion& completion) const {
  if (tokenizer_ == nullptr) {
    return absl::FailedPreconditionError(
        "expected a reward model with a tokenizer.json, which texts need: state its folder "
        "(reward.model.path), or give token ids");
  }
  std::vector<int32_t> ids;
  if (prompt.chat.has_value()) {
    nlohmann::ordered_json messages = prompt.chat->messages;
    messages.push_back({{"role", "assistant"}, {"content", completion.text}});
    ASSIGN_OR_RETURN(ids, tokenizer_->EncodeChat(messages, {.add_generation_prompt = false,
                                                            .tools = prompt.chat->tools,
                                                            .extra = prompt.chat->variables}));
  } else if (!prompt.text.empty() || prompt.token_ids.empty()) {
    ASSIGN_OR_RETURN(ids, tokenizer_->Encode(absl::StrCat(prompt.text, completion.text),
                                             /*add_special_tokens=*/true));
  } else {
    return absl::InvalidArgumentError(
        "expected a prompt of text or messages, for the reward model has another tokenizer than "
        "the policy; found token ids");
  }
  return std::vector<uint32_t>(ids.begin(), ids.end());
}

Score ModelReward::ScoreOf(const absl::StatusOr<rollout::v1::ScoreResponse>& response) const {
  Score score;
  if (!response.ok()) {
    score.failure = response.status();
  } else if (response->class_logits_size() != 1) {
    score.failure = absl::InternalError(absl::StrCat(
        client_->name(), ": expected one logit, found ", response->class_logits_size()));
  } else if (const double logit = response->class_logits(0); rewards::IsReward(logit)) {
    score.reward = logit;
  } else {
    score.failure =
        absl::InternalError(absl::StrCat(client_->name(), ": ", rewards::ExpectedReward(logit)));
  }
  return score;
}

absl::StatusOr<std::vector<Score>> ModelReward::Judge(const std::vector<Judged>& completions) {
  if (client_ == nullptr) return absl::InternalError("the reward model is not connected yet");
  std::vector<std::vector<uint32_t>> sequences;
  for (const Judged& judged : completions) {
    absl::StatusOr<std::vector<uint32_t>> ids = IdsOf(judged);
    if (!ids.ok()) return StatusBuilder(ids.status()) << RowName(*judged.prompt);
    sequences.push_back(*std::move(ids));
  }
  std::vector<Score> scores = ScoreIds(std::move(sequences));
  if (interrupted_ && interrupted_()) return absl::CancelledError("interrupted");
  return scores;
}

std::vector<Score> ModelReward::ScoreIds(std::vector<std::vector<uint32_t>> sequences) {
  std::vector<rollout::v1::ScoreRequest> requests(sequences.size());
  for (size_t i = 0; i < sequences.size(); ++i) {
    requests[i].mutable_token_ids()->Add(sequences[i].begin(), sequences[i].end());
  }
  std::vector<Score> scores;
  for (const auto& response : client_->Score(std::move(requests), ScoreClient::OnError::kGoOn)) {
    scores.push_back(ScoreOf(response));
  }
  return scores;
}

}  // namespace tandem::driver
