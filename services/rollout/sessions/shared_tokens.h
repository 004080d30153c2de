// The tokens that a prompt shares with an earlier call of its session: their experts, which follow from
// the tokens, are recorded once.
#ifndef TANDEM_SERVICES_ROLLOUT_SESSIONS_SHARED_TOKENS_H_
#define TANDEM_SERVICES_ROLLOUT_SESSIONS_SHARED_TOKENS_H_

#include <algorithm>
#include <cstdint>

#include "tandem/rollout/v1/rollout_service.pb.h"

namespace tandem::rollout {

// The number of tokens with which both `prompt` and the call's prompt and sampled tokens begin; 0 if the
// call shows an image where the prompt has another or none, because equal placeholders then have other
// experts. `image_digests`: of the prompt, in order. The last sampled token, which was never computed, does
// not count.
template <typename Tokens, typename Digests>
int64_t NumSharedTokens(const v1::RecordedCall& call, const Tokens& prompt,
                        const Digests& image_digests) {
  const auto images = std::mismatch(call.image_digests().begin(), call.image_digests().end(),
                                    image_digests.begin(), image_digests.end());
  if (images.first != call.image_digests().end()) return 0;
  const auto same = [](uint32_t a, auto b) { return a == static_cast<uint32_t>(b); };
  const auto begins = std::mismatch(call.prompt_token_ids().begin(), call.prompt_token_ids().end(),
                                    prompt.begin(), prompt.end(), same);
  const int64_t of_prompt = begins.first - call.prompt_token_ids().begin();
  if (of_prompt < call.prompt_token_ids_size() || call.token_ids_size() == 0) return of_prompt;
  const auto sampled = std::mismatch(call.token_ids().begin(), call.token_ids().end() - 1,
                                     begins.second, prompt.end(), same);
  return of_prompt + (sampled.first - call.token_ids().begin());
}

}  // namespace tandem::rollout

#endif  // TANDEM_SERVICES_ROLLOUT_SESSIONS_SHARED_TOKENS_H_
