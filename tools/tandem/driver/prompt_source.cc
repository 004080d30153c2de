#include "tools/tandem/driver/prompt_source.h"

#include <filesystem>
#include <numeric>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/hash/hasher.h"
#include "common/io/jsonl.h"
#include "common/status/status_macros.h"

namespace tandem::driver {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

ordered_json AsMessages(const json& prompt, const config::v1::DataConfig& config) {
  ordered_json messages = ordered_json::array();
  const bool has_system = prompt.is_array() && !prompt.empty() && prompt[0].is_object() &&
                          prompt[0].value("role", "") == "system";
  if (!config.system_prompt().empty() && !has_system) {
    messages.push_back({{"role", "system"}, {"content", config.system_prompt()}});
  }
  if (prompt.is_string()) {
    messages.push_back({{"role", "user"},
                        {"content", absl::StrCat(config.prompt_prefix(), prompt.get<std::string>(),
                                                 config.prompt_suffix())}});
  } else {
    for (const json& message : prompt) messages.push_back(ordered_json(message));
  }
  return messages;
}

bool IsIdList(const json& value) {
  if (!value.is_array() || value.empty()) return false;
  for (const json& id : value) {
    if (!id.is_number_unsigned()) return false;
  }
  return true;
}

absl::StatusOr<Prompt> MakePrompt(const json& row, const config::v1::DataConfig& config,
                                  const tokenizer::Tokenizer* tokenizer) {
  Prompt prompt;
  prompt.fields = row;
  const auto found = row.find(config.prompt_key());
  if (found == row.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("expected the key '", config.prompt_key(), "' (data.prompt_key), found none"));
  }
  if (const auto answer = row.find(config.answer_key()); answer != row.end()) {
    prompt.answer = answer->is_string() ? answer->get<std::string>() : answer->dump();
  }
  if (IsIdList(*found)) {
    prompt.token_ids = found->get<std::vector<uint32_t>>();
    return prompt;
  }
  const bool is_chat = found->is_array();
  if (!found->is_string() && !is_chat) {
    return absl::InvalidArgumentError(
        absl::StrCat(config.prompt_key(), ": expected a string, a list of messages or a list of ",
                     "token ids, found ", found->type_name()));
  }
  if (tokenizer == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(
        config.prompt_key(), ": text needs a tokenizer, and the model's folder has none"));
  }
  std::vector<int32_t> ids;
  if (is_chat || config.chat_template()) {
    tokenizer::ChatOptions options;
    options.add_generation_prompt = true;
    ASSIGN_OR_RETURN(prompt.text, tokenizer->RenderChat(AsMessages(*found, config), options));
    ASSIGN_OR_RETURN(ids, tokenizer->Encode(prompt.text, /*add_special_tokens=*/false));
  } else {
    prompt.text =
        absl::StrCat(config.prompt_prefix(), found->get<std::string>(), config.prompt_suffix());
    ASSIGN_OR_RETURN(ids, tokenizer->Encode(prompt.text, /*add_special_tokens=*/true));
  }
  prompt.token_ids.assign(ids.begin(), ids.end());
  if (prompt.token_ids.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(config.prompt_key(), ": the prompt has no tokens"));
  }
  return prompt;
}

}  // namespace

absl::StatusOr<PromptSource> PromptSource::Load(const std::vector<std::string>& files,
                                                const config::v1::DataConfig& config,
                                                const tokenizer::Tokenizer* tokenizer,
                                                uint64_t seed) {
  PromptSource source;
  source.shuffle_ = config.shuffle();
  source.seed_ = seed;
  int64_t row_number = 0;
  for (const std::string& file : files) {
    hash::Hasher digest;
    RETURN_IF_ERROR(io::ForEachJsonLine(file, [&](const io::JsonFields& row) -> absl::Status {
      digest.Update(row.source());
      digest.Update("\n");
      ASSIGN_OR_RETURN(Prompt prompt, MakePrompt(row.json(), config, tokenizer));
      prompt.row = row_number++;
      if (static_cast<int64_t>(prompt.token_ids.size()) > config.max_prompt_length()) {
        ++source.num_too_long_;
      } else {
        source.prompts_.push_back(std::move(prompt));
      }
      return absl::OkStatus();
    }));
    source.files_.push_back({file, digest.Hex()});
  }
  if (source.prompts_.empty()) {
    return absl::InvalidArgumentError(
        row_number == 0
            ? absl::StrCat("no rows in the data files (", files.size(), " given)")
            : absl::StrCat("all ", row_number, " prompts are longer than data.max_prompt_length = ",
                           config.max_prompt_length(), " tokens"));
  }
  source.order_.resize(source.prompts_.size());
  return source;
}

void PromptSource::ShuffleEpoch() {
  std::iota(order_.begin(), order_.end(), 0);
  if (!shuffle_) return;
  const uint64_t epoch = static_cast<uint64_t>(position_) / order_.size();
  // Fisher-Yates by hand: std::shuffle's use of the generator differs between standard libraries.
  std::mt19937_64 generator(seed_ * 0x9E3779B97F4A7C15ULL + epoch + 1);
  for (size_t i = order_.size() - 1; i > 0; --i) {
    std::swap(order_[i], order_[generator() % (i + 1)]);
  }
}

absl::StatusOr<std::unique_ptr<tokenizer::Tokenizer>> LoadTokenizerIfAny(
    const std::string& model_folder) {
  if (!std::filesystem::exists(model_folder + "/tokenizer.json")) return nullptr;
  return tokenizer::Tokenizer::Load(model_folder);
}

void PromptSource::Seek(int64_t position) {
  position_ = position;
  // At the start of an epoch Next() draws the order.
  if (position_ % static_cast<int64_t>(order_.size()) != 0) ShuffleEpoch();
}

std::vector<Prompt> PromptSource::Next(int64_t count) {
  std::vector<Prompt> batch;
  batch.reserve(count);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t within = position_ % static_cast<int64_t>(order_.size());
    if (within == 0) ShuffleEpoch();
    batch.push_back(prompts_[order_[within]]);
    ++position_;
  }
  return batch;
}

}  // namespace tandem::driver
