// PromptSource: the rows of data sets as prompts, tokenised per the run's configuration, in an
// order that depends only on the seed.
#ifndef TANDEM_TOOLS_TANDEM_DRIVER_PROMPT_SOURCE_H_
#define TANDEM_TOOLS_TANDEM_DRIVER_PROMPT_SOURCE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/tokenizer/tokenizer.h"
#include "tandem/config/v1/run_config.pb.h"
#include "tools/tandem/driver/completion.h"
#include "tools/tandem/driver/row_prompt.h"

namespace tandem::driver {

// A data file that was read.
struct DataFile {
  std::string path;
  std::string digest;  // xxh3-128 in hex of its rows, each with a newline
  std::string form;    // of its first row, see dataset::RowForm
  int64_t num_rows = 0;
};

class PromptSource {
 public:
  // Reads the entries of `files` (dataset::ExpandDataFiles). A row needs a prompt (text, a list of
  // chat messages, or token ids) and what `needs` says. INVALID_ARGUMENT names file, line and key.
  // Skips and counts prompts longer than max_prompt_length; an error if none is left. `tokenizer`
  // may be null if every row gives ids.
  // `weights` says how often each entry's rows occur in an epoch (data.train_weights); empty: once.
  static absl::StatusOr<PromptSource> Load(const std::vector<std::string>& files,
                                           const config::v1::DataConfig& config,
                                           const tokenizer::Tokenizer* tokenizer, uint64_t seed,
                                           const RowNeeds& needs = {},
                                           const std::vector<double>& weights = {});

  // Returns the next `count` prompts; after the last prompt a new epoch begins, in a new order.
  std::vector<Prompt> Next(int64_t count);

  const std::vector<Prompt>& prompts() const { return prompts_; }
  // The number of prompts of an epoch: that of prompts(), if every weight is 1.
  int64_t epoch_size() const { return static_cast<int64_t>(order_.size()); }
  const std::vector<DataFile>& files() const { return files_; }
  // For messages: "FILE: row N", counted from 1 within the file.
  std::string PlaceOf(const Prompt& prompt) const;
  int64_t num_too_long() const { return num_too_long_; }
  // The number of prompts returned since the start: the cursor of a resumed run.
  int64_t position() const { return position_; }
  // Continues as if Next() had returned `position` prompts.
  void Seek(int64_t position);

 private:
  // The prompts of one entry of the files.
  struct Entry {
    int64_t begin = 0;
    int64_t end = 0;
    double weight = 1;
  };

  // Reads the rows of one file; `row_number` counts those of all files.
  absl::Status Read(const std::string& path, const RowPrompts& rows,
                    const config::v1::DataConfig& config, int64_t& row_number);
  void ShuffleEpoch();
  // The entry's prompts of an epoch, in order.
  std::vector<int64_t> PromptsOf(size_t entry, uint64_t epoch) const;

  std::vector<Prompt> prompts_;
  std::vector<DataFile> files_;
  std::vector<Entry> entries_;
  std::vector<int64_t> order_;
  int64_t num_too_long_ = 0;
  int64_t position_ = 0;
  bool shuffle_ = true;
  uint64_t seed_ = 0;
};

// Loads the tokenizer of a model folder; null if the folder has none.
absl::StatusOr<std::unique_ptr<tokenizer::Tokenizer>> LoadTokenizerIfAny(
    const std::string& model_folder);

}  // namespace tandem::driver

#endif  // TANDEM_TOOLS_TANDEM_DRIVER_PROMPT_SOURCE_H_
