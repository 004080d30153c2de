// Checks that a teacher's folder has the policy's vocabulary: its log-probs are compared token by
// token.
#ifndef TANDEM_TOOLS_TANDEM_DRIVER_TEACHER_FOLDER_H_
#define TANDEM_TOOLS_TANDEM_DRIVER_TEACHER_FOLDER_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "common/tokenizer/tokenizer.h"

namespace tandem::driver {

// INVALID_ARGUMENT names `key`, both sizes, or the first token that differs. `tokenizer` is the
// policy's; null, or no tokenizer in the folder: only the sizes are compared.
absl::Status CheckTeacherFolder(const std::string& key, const std::string& folder,
                                int64_t vocab_size, const tokenizer::Tokenizer* tokenizer);

}  // namespace tandem::driver

#endif  // TANDEM_TOOLS_TANDEM_DRIVER_TEACHER_FOLDER_H_
