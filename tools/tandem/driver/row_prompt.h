// RowPrompts: makes a prompt, and the sequences to train on, of a data set's row.
#ifndef TANDEM_TOOLS_TANDEM_DRIVER_ROW_PROMPT_H_
#define TANDEM_TOOLS_TANDEM_DRIVER_ROW_PROMPT_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/io/json_fields.h"
#include "common/tokenizer/tokenizer.h"
#include "tandem/config/v1/run_config.pb.h"
#include "tools/tandem/dataset/row_form.h"
#include "tools/tandem/driver/completion.h"
#include "tools/tandem/driver/image_reader.h"
#include "tools/tandem/reward/reward.h"

namespace tandem::driver {

// What a run needs of a row besides its prompt.
struct RowNeeds {
  enum class Given {
    kNone,
    kCompletion,  // supervised training
    kPair,        // preferences
  };
  bool answer = false;  // the reward compares with it
  // Whether the reward can use an answer; null: any will do. Unused without `answer`.
  reward::AnswerCheck check_answer;
  Given given = Given::kNone;
  bool given_is_optional = false;  // a row without it gives nothing
  // The prompt is sampled from. Unset: it only precedes what is given.
  bool generation = true;
  // Keeps what the chat template rendered, for episodes of several turns, judges and reward models.
  bool keeps_chat = false;
  // Schemas of tools for rows that give none; null: none.
  nlohmann::ordered_json tools;
  // Ids that end a completion. The first is added to a completion that has none.
  std::vector<uint32_t> end_ids;
  // Reads the rows' images (data.image_key, and image parts of messages); null: the model sees none.
  // Outlives the rows.
  const ImageReader* images = nullptr;
};

// Immutable; the arguments of the constructor must outlive it. `tokenizer` may be null if every row
// gives token ids.
class RowPrompts {
 public:
  RowPrompts(const config::v1::DataConfig& config, const tokenizer::Tokenizer* tokenizer,
             const RowNeeds& needs)
      : config_(config), tokenizer_(tokenizer), needs_(needs) {}

  // INVALID_ARGUMENT names the key, and for a missing one the keys that the row has. Paths of images
  // are relative to `folder`, that of the row's file.
  absl::StatusOr<Prompt> Make(const io::JsonFields& row, const dataset::RowForm& form,
                              const std::string& folder = "") const;

 private:
  class Builder;

  const config::v1::DataConfig& config_;
  const tokenizer::Tokenizer* const tokenizer_;
  const RowNeeds& needs_;
};

}  // namespace tandem::driver

#endif  // TANDEM_TOOLS_TANDEM_DRIVER_ROW_PROMPT_H_
