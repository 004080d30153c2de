// Recognises the form of a data row: which of its keys hold prompt, answer, completions and tools.
#ifndef TANDEM_TOOLS_TANDEM_DATASET_ROW_FORM_H_
#define TANDEM_TOOLS_TANDEM_DATASET_ROW_FORM_H_

#include <nlohmann/json.hpp>
#include <string>

#include "tandem/config/v1/run_config.pb.h"

namespace tandem::dataset {

// Keys, dotted for nested ones; empty: the row has none.
struct RowForm {
  std::string name;            // for reports: "verl: prompt, reward_model.ground_truth"
  std::string prompt_key;      // text, messages or token ids
  std::string answer_key;      // what rewards compare with
  std::string completion_key;  // what `sft` trains on, if it is not in the prompt's conversation
  std::string chosen_key;
  std::string rejected_key;
  std::string tools_key;
  // The prompt is a conversation that ends with an assistant's message: the completion, and the
  // answer of a row without one.
  bool is_conversation = false;
};

// The configured keys (data.prompt_key, answer_key, chosen_key, rejected_key) come first. Where the
// row lacks one that has its default value, the keys of TRL, verl and OpenAI's fine-tuning are
// tried. A ground truth is an answer for rewards, never a completion to learn.
RowForm RecogniseForm(const nlohmann::json& row, const config::v1::DataConfig& config);

}  // namespace tandem::dataset

#endif  // TANDEM_TOOLS_TANDEM_DATASET_ROW_FORM_H_
