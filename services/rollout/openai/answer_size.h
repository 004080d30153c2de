// The size of a complete response, known before it is built: its JSON takes several times as much
// memory while it is put together.
#ifndef TANDEM_SERVICES_ROLLOUT_OPENAI_ANSWER_SIZE_H_
#define TANDEM_SERVICES_ROLLOUT_OPENAI_ANSWER_SIZE_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "services/rollout/engine/generation.h"
#include "services/rollout/openai/completion_request.h"

namespace tandem::rollout::openai {

// Half of the responses that the HTTP server holds for slow readers (http::Limits); it drops what
// exceeds all of them.
inline constexpr int64_t kMaxAnswerBytes = int64_t{64} << 20;

// About the bytes of the JSON text; `chunks` has one complete chunk per choice, or is empty for the
// part of the answer that repeats the request.
int64_t AnswerBytes(const CompletionRequest& request, const std::vector<SampleChunk>& chunks);

// INVALID_ARGUMENT that names the field to change, for more than kMaxAnswerBytes.
absl::Status CheckAnswerBytes(const CompletionRequest& request,
                              const std::vector<SampleChunk>& chunks);

}  // namespace tandem::rollout::openai

#endif  // TANDEM_SERVICES_ROLLOUT_OPENAI_ANSWER_SIZE_H_
