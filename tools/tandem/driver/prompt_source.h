// PromptSource: the rows of JSONL data sets as prompts, tokenised as the run's configuration says,
// in an order that depends on the seed alone.
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

namespace tandem::driver {

// A file of rows that was read.
struct DataFile {
  std::string path;
  std::string digest;  // xxh3-128 in hex over its rows, each with an end of line
};

class PromptSource {
 public:
  // Reads `files`. A row needs the prompt key (a string, a list of chat messages, or token ids);
  // the answer key may be absent, the answer is then empty. INVALID_ARGUMENT names file, line and
  // key. Prompts longer than max_prompt_length are left out and counted; an error if none is left.
  // `tokenizer` may be null where every row gives ids.
  static absl::StatusOr<PromptSource> Load(const std::vector<std::string>& files,
                                           const config::v1::DataConfig& config,
                                           const tokenizer::Tokenizer* tokenizer, uint64_t seed);

  // The next `count` prompts; a new epoch begins, in a new order, when all have been given.
  std::vector<Prompt> Next(int64_t count);

  const std::vector<Prompt>& prompts() const { return prompts_; }
  const std::vector<DataFile>& files() const { return files_; }
  int64_t num_too_long() const { return num_too_long_; }
  // How many prompts have been given since the start: the cursor of a resumed run.
  int64_t position() const { return position_; }
  // Goes on as if `position` prompts had been given.
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

// The tokenizer of a model folder; null where the folder has none.
absl::StatusOr<std::unique_ptr<tokenizer::Tokenizer>> LoadTokenizerIfAny(
    const std::string& model_folder);

}  // namespace tandem::driver

#endif  // TANDEM_TOOLS_TANDEM_DRIVER_PROMPT_SOURCE_H_
