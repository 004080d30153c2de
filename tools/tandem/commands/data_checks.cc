#include "tools/tandem/commands/data_checks.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/status/status_macros.h"
#include "common/text/count.h"

namespace tandem::commands {
namespace {

using text::Count;

// The model has each of the ids.
absl::Status CheckIds(const std::vector<uint32_t>& ids, int64_t vocab_size) {
  for (const uint32_t id : ids) {
    if (id < vocab_size) continue;
    return absl::InvalidArgumentError(absl::StrFormat(
        "has token %d, but the model's vocabulary (vocab_size of its config.json) ends with %d; "
        "use the tokenizer that the model was trained with",
        id, vocab_size - 1));
  }
  return absl::OkStatus();
}

// What the data set gives whole is one sequence of the model.
absl::Status CheckGiven(const driver::GivenSequence& sequence, const model::ModelSpec& spec) {
  int64_t length = 0;
  for (const driver::TokenRun& run : sequence) {
    RETURN_IF_ERROR(CheckIds(run.token_ids, spec.vocab_size));
    length += static_cast<int64_t>(run.token_ids.size());
  }
  if (length <= spec.max_position_embeddings) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat(
      "has %s with its completion, but the model has %s (max_position_embeddings of its "
      "config.json); shorten or remove the row",
      Count(length, "token"), Count(spec.max_position_embeddings, "position")));
}

absl::Status CheckSequences(const char* key, const driver::PromptSource& source,
                            const model::ModelSpec& spec) {
  for (const driver::Prompt& prompt : source.prompts()) {
    absl::Status status = CheckIds(prompt.token_ids, spec.vocab_size);
    for (const driver::GivenSequence& sequence : prompt.given) {
      if (status.ok()) status = CheckGiven(sequence, spec);
    }
    if (status.ok()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(key, ": ", source.PlaceOf(prompt), " ", status.message()));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckRows(const CheckedRun& run, std::vector<std::string>& warnings) {
  RETURN_IF_ERROR(CheckSequences("data.train_files", run.train, run.spec));
  if (run.test != nullptr) {
    RETURN_IF_ERROR(CheckSequences("data.test_files", *run.test, run.spec));
  }
  return absl::OkStatus();
}

}  // namespace tandem::commands
