#include "tools/tandem/driver/prompt_source.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numeric>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/hash/hasher.h"
#include "common/io/file_util.h"
#include "common/status/status_macros.h"
#include "tools/tandem/dataset/data_files.h"
#include "tools/tandem/dataset/row_form.h"
#include "tools/tandem/dataset/row_reader.h"
#include "tools/tandem/driver/image_reader.h"
#include "tools/tandem/driver/row_urls.h"

namespace tandem::driver {
namespace {

constexpr uint64_t kSeedFactor = 0x9E3779B97F4A7C15ULL;

// Fisher-Yates by hand: std::shuffle's use of the generator differs between standard libraries.
void Shuffle(std::vector<int64_t>& order, uint64_t seed) {
  std::mt19937_64 generator(seed);
  for (size_t i = order.size() - 1; i > 0; --i) std::swap(order[i], order[generator() % (i + 1)]);
}

// URLs that are fetched together: many at a time, few enough that their list takes no memory.
constexpr size_t kUrlsAtOnce = 1024;

// Fetches the images of a file's rows, several at a time. Errors are left to who reads the rows, one
// after another: it names the first row at fault, whatever was fetched first.
void PrefetchImages(const std::string& path, const config::v1::DataConfig& config,
                    const UrlImages& images) {
  std::vector<std::string> urls;
  bool goes_on = true;
  const auto visit = [&](const io::JsonFields& row) -> absl::Status {
    for (std::string& url :
         RowUrls(row.json(), dataset::RecogniseForm(row.json(), config), config)) {
      urls.push_back(std::move(url));
    }
    if (urls.size() < kUrlsAtOnce) return absl::OkStatus();
    goes_on = images.Prefetch(std::exchange(urls, {}));
    return goes_on ? absl::OkStatus() : absl::CancelledError();
  };
  dataset::ForEachRow(path, visit).IgnoreError();
  if (goes_on && !urls.empty()) images.Prefetch(urls);
}

}  // namespace

absl::StatusOr<PromptSource> PromptSource::Load(const std::vector<std::string>& files,
                                                const config::v1::DataConfig& config,
                                                const tokenizer::Tokenizer* tokenizer,
                                                uint64_t seed, const RowNeeds& needs,
                                                const std::vector<double>& weights) {
  PromptSource source;
  source.shuffle_ = config.shuffle();
  source.seed_ = seed;
  const RowPrompts rows(config, tokenizer, needs);
  int64_t row_number = 0;
  for (size_t i = 0; i < files.size(); ++i) {
    Entry entry = {.begin = static_cast<int64_t>(source.prompts_.size()),
                   .weight = i < weights.size() ? weights[i] : 1};
    ASSIGN_OR_RETURN(const std::vector<std::string> paths, dataset::ExpandDataFiles(files[i]));
    for (const std::string& path : paths) {
      if (needs.images != nullptr && needs.images->urls() != nullptr) {
        PrefetchImages(path, config, *needs.images->urls());
      }
      RETURN_IF_ERROR(source.Read(path, rows, config, row_number));
    }
    entry.end = static_cast<int64_t>(source.prompts_.size());
    source.entries_.push_back(entry);
  }
  if (source.prompts_.empty()) {
    return absl::InvalidArgumentError(
        row_number == 0
            ? absl::StrCat("no rows in the data files (", files.size(), " given)")
            : absl::StrCat("all ", row_number, " prompts are longer than data.max_prompt_length = ",
                           config.max_prompt_length(), " tokens"));
  }
  source.ShuffleEpoch();
  return source;
}

absl::Status PromptSource::Read(const std::string& path, const RowPrompts& rows,
                                const config::v1::DataConfig& config, int64_t& row_number) {
  hash::Hasher digest;
  DataFile& read = files_.emplace_back();
  read.path = path;
  const std::string folder = io::ParentFolder(path);
  RETURN_IF_ERROR(dataset::ForEachRow(path, [&](const io::JsonFields& row) -> absl::Status {
    digest.Update(row.source());
    digest.Update("\n");
    const dataset::RowForm form = dataset::RecogniseForm(row.json(), config);
    if (read.num_rows++ == 0) read.form = form.name;
    ASSIGN_OR_RETURN(Prompt prompt, rows.Make(row, form, folder));
    for (const PromptImage& image : prompt.images) digest.Update(image.digest);
    prompt.row = row_number++;
    if (static_cast<int64_t>(prompt.token_ids.size()) > config.max_prompt_length()) {
      ++num_too_long_;
    } else {
      prompts_.push_back(std::move(prompt));
    }
    return absl::OkStatus();
  }));
  read.digest = digest.Hex();
  return absl::OkStatus();
}

std::string PromptSource::PlaceOf(const Prompt& prompt) const {
  int64_t row = prompt.row;
  for (const DataFile& file : files_) {
    if (row < file.num_rows) return absl::StrCat(file.path, ": row ", row + 1);
    row -= file.num_rows;
  }
  return absl::StrCat("row ", prompt.row + 1);  // not one of this source
}

std::vector<int64_t> PromptSource::PromptsOf(size_t index, uint64_t epoch) const {
  const Entry& entry = entries_[index];
  const int64_t size = entry.end - entry.begin;
  std::vector<int64_t> out;
  for (int64_t copy = 0; copy < static_cast<int64_t>(entry.weight); ++copy) {
    for (int64_t i = entry.begin; i < entry.end; ++i) out.push_back(i);
  }
  const double share = entry.weight - std::floor(entry.weight);
  if (share == 0 || size == 0) return out;
  // The next part of a shuffle that all epochs share: every row comes equally often.
  std::vector<int64_t> shuffled(size);
  std::iota(shuffled.begin(), shuffled.end(), entry.begin);
  Shuffle(shuffled, seed_ * kSeedFactor + index);
  const uint64_t count = std::max<int64_t>(1, std::llround(share * static_cast<double>(size)));
  for (uint64_t i = 0; i < count; ++i) out.push_back(shuffled[(epoch * count + i) % size]);
  std::sort(out.end() - static_cast<int64_t>(count), out.end());
  return out;
}

void PromptSource::ShuffleEpoch() {
  const uint64_t epoch = order_.empty() ? 0 : static_cast<uint64_t>(position_) / order_.size();
  order_.clear();
  for (size_t i = 0; i < entries_.size(); ++i) {
    const std::vector<int64_t> prompts = PromptsOf(i, epoch);
    order_.insert(order_.end(), prompts.begin(), prompts.end());
  }
  if (shuffle_) Shuffle(order_, seed_ * kSeedFactor + epoch + 1);
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
