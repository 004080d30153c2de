// PromptSource: the rows of data sets as prompts, tokenised per the run's configuration, in an order
// that depends only on the seed.
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
  // Reads `files`. A row needs a prompt (text, a list of chat messages, or token ids) and what
  // `needs` says. INVALID_ARGUMENT names file, line and key. Skips and counts prompts longer than
  // max_prompt_length; an error if none is left. `tokenizer` may be null if every row gives ids.
  static absl::StatusOr<PromptSource> Load(const std::vector<std::string>& files,
                                           const config::v1::DataConfig& config,
                                           const tokenizer::Tokenizer* tokenizer, uint64_t seed,
                                           const RowNeeds& needs = {});

  // Returns the next `count` prompts; after the last prompt a new epoch begins, in a new order.
  std::vector<Prompt> Next(int64_t count);

  const std::vector<Prompt>& prompts() const { return prompts_; }
  const std::vector<DataFile>& files() const { return files_; }
  int64_t num_too_long() const { return num_too_long_; }
  // The number of prompts returned since the start: the cursor of a resumed run.
  int64_t position() const { return position_; }
  // Continues as if Next() had returned `position` prompts.
  void Seek(int64_t position);

 private:
  void ShuffleEpoch();

  std::vector<Prompt> prompts_;
  std::vector<DataFile> files_;
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
