// Converts between tandem.rollout.v1 messages and the engine's types.
#ifndef TANDEM_SERVICES_ROLLOUT_REQUESTS_CONVERT_H_
#define TANDEM_SERVICES_ROLLOUT_REQUESTS_CONVERT_H_

#include <vector>

#include "absl/status/statusor.h"
#include "common/tokenizer/tokenizer.h"
#include "services/rollout/engine/generation.h"
#include "services/rollout/images/request_images.h"
#include "tandem/rollout/v1/rollout_service.pb.h"

namespace tandem::rollout {

// INVALID_ARGUMENT names the field: no prompt, text without a tokenizer (null), or invalid UTF-8.
// The engine checks ranges. An id that does not fit int32 becomes negative, which the engine
// rejects.
absl::StatusOr<GenerationRequest> FromProto(const v1::GenerateRequest& request,
                                            const tokenizer::Tokenizer* tokenizer);
ScoreRequest FromProto(const v1::ScoreRequest& request);
// The images are left to Engine::ReadImages(): they take time.
std::vector<ImageFile> ImageFilesOf(
    const google::protobuf::RepeatedPtrField<common::v1::Image>& images);

v1::GenerateResponse ToProto(SampleChunk chunk, const std::string& request_id,
                             bool processed_logprobs);

// Appends the tokens, text and end of `next`, a later chunk of the same sample, to `chunk`.
void Merge(SampleChunk next, SampleChunk& chunk);

}  // namespace tandem::rollout

#endif  // TANDEM_SERVICES_ROLLOUT_REQUESTS_CONVERT_H_
