// What clients send to a rollout: the first byte says which message the rest is. What is accepted
// keeps within the limits that the engine relies on.
#include <cstdlib>

#include "services/rollout/engine/limits.h"
#include "services/rollout/requests/convert.h"

namespace {

using namespace tandem::rollout;  // NOLINT: the checks

const RequestLimits kLimits = {.vocab_size = 100, .max_model_len = 64, .has_tokenizer = false};

void Generate(const v1::GenerateRequest& message) {
  const auto request = FromProto(message, nullptr);
  if (!request.ok() || !CheckRequest(*request, kLimits).ok()) return;
  if (!CheckBegun(*request, kLimits).ok()) return;
  for (const int32_t id : request->prompt_ids) {
    if (id < 0 || id >= kLimits.vocab_size) std::abort();
  }
}

void Score(const v1::ScoreRequest& message) {
  const ScoreRequest request = FromProto(message);
  if (!CheckRequest(request, kLimits).ok()) return;
  for (const int32_t id : request.token_ids) {
    if (id < 0 || id >= kLimits.vocab_size) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  v1::GenerateRequest generate;
  v1::ScoreRequest score;
  if (data[0] % 2 == 0) {
    if (generate.ParseFromArray(data + 1, static_cast<int>(size - 1))) Generate(generate);
  } else {
    if (score.ParseFromArray(data + 1, static_cast<int>(size - 1))) Score(score);
  }
  return 0;
}
