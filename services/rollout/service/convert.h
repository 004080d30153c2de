// Between the messages of tandem.rollout.v1 and what the engine works with.
#ifndef TANDEM_SERVICES_ROLLOUT_SERVICE_CONVERT_H_
#define TANDEM_SERVICES_ROLLOUT_SERVICE_CONVERT_H_

#include "absl/status/statusor.h"
#include "common/tokenizer/tokenizer.h"
#include "services/rollout/engine/generation.h"
#include "tandem/rollout/v1/rollout_service.pb.h"

namespace tandem::rollout {

// INVALID_ARGUMENT names the field: no prompt, or text without a tokenizer (null) or that is no
// UTF-8. Ranges are the engine's to check. An id that does not fit int32 becomes negative, which it
// refuses.
absl::StatusOr<GenerationRequest> FromProto(const v1::GenerateRequest& request,
                                            const tokenizer::Tokenizer* tokenizer);
ScoreRequest FromProto(const v1::ScoreRequest& request);

v1::GenerateResponse ToProto(SampleChunk chunk, const std::string& request_id,
                             bool processed_logprobs);

// Appends the tokens, text and end of `next`, a later chunk of the same sample, to `chunk`.
void Merge(SampleChunk next, SampleChunk& chunk);

// A random UUID.
std::string DrawRequestId();

}  // namespace tandem::rollout

#endif  // TANDEM_SERVICES_ROLLOUT_SERVICE_CONVERT_H_
