#include "tools/tandem/driver/prompt_source.h"

#include <filesystem>
#include <numeric>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/hash/hasher.h"
#include "common/io/jsonl.h"
#include "common/status/status_macros.h"
#include "tools/tandem/dataset/row_form.h"

namespace tandem::driver {

absl::StatusOr<PromptSource> PromptSource::Load(const std::vector<std::string>& files,
                                                const config::v1::DataConfig& config,
                                                const tokenizer::Tokenizer* tokenizer,
                                                uint64_t seed, const RowNeeds& needs) {
  PromptSource source;
  source.shuffle_ = config.shuffle();
  source.seed_ = seed;
  const RowPrompts rows(config, tokenizer, needs);
  int64_t row_number = 0;
  for (const std::string& file : files) {
    hash::Hasher digest;
    DataFile& read = source.files_.emplace_back();
    read.path = file;
    RETURN_IF_ERROR(io::ForEachJsonLine(file, [&](const io::JsonFields& row) -> absl::Status {
      digest.Update(row.source());
      digest.Update("\n");
      const dataset::RowForm form = dataset::RecogniseForm(row.json(), config);
      if (read.num_rows++ == 0) read.form = form.name;
      ASSIGN_OR_RETURN(Prompt prompt, rows.Make(row, form));
      prompt.row = row_number++;
      if (static_cast<int64_t>(prompt.token_ids.size()) > config.max_prompt_length()) {
        ++source.num_too_long_;
      } else {
        source.prompts_.push_back(std::move(prompt));
      }
      return absl::OkStatus();
    }));
    read.digest = digest.Hex();
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
