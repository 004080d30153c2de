#include "tools/tandem/driver/teacher_folder.h"

#include <algorithm>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/io/model_config.h"
#include "common/model/model_spec.h"
#include "common/status/status_macros.h"
#include "tools/tandem/driver/prompt_source.h"

namespace tandem::driver {
namespace {

std::string Quoted(const std::string* token) {
  return token == nullptr ? "no token" : absl::StrCat("\"", *token, "\"");
}

}  // namespace

absl::Status CheckTeacherFolder(const std::string& key, const std::string& folder,
                                int64_t vocab_size, const tokenizer::Tokenizer* tokenizer) {
  const absl::StatusOr<io::ModelConfig> config = io::ReadModelConfig(folder);
  RETURN_IF_ERROR(config.status()) << key;
  const absl::StatusOr<model::ModelSpec> spec = model::ParseModelSpec(config->json, config->path);
  RETURN_IF_ERROR(spec.status()) << key;
  if (spec->vocab_size != vocab_size) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s: expected a model with the policy's vocabulary of %d tokens, found %d in %s", key,
        vocab_size, spec->vocab_size, folder));
  }
  if (tokenizer == nullptr) return absl::OkStatus();
  absl::StatusOr<std::unique_ptr<tokenizer::Tokenizer>> own = LoadTokenizerIfAny(folder);
  RETURN_IF_ERROR(own.status()) << key;
  if (*own == nullptr) return absl::OkStatus();
  for (int32_t id = 0; id < static_cast<int32_t>(vocab_size); ++id) {
    const std::string* const expected = tokenizer->IdToToken(id);
    const std::string* const found = (*own)->IdToToken(id);
    const bool same =
        expected == nullptr || found == nullptr ? expected == found : *expected == *found;
    if (same) continue;
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s: expected the policy's tokens (its tokenizer has %d, that of %s %d), but token %d is "
        "%s there and %s for the policy",
        key, tokenizer->vocab_size(), folder, (*own)->vocab_size(), id, Quoted(found),
        Quoted(expected)));
  }
  return absl::OkStatus();
}

}  // namespace tandem::driver
