// Digests of a chat's messages, by which a message that comes back is known again.
#ifndef TANDEM_SERVICES_ROLLOUT_SESSIONS_MESSAGE_DIGESTS_H_
#define TANDEM_SERVICES_ROLLOUT_SESSIONS_MESSAGE_DIGESTS_H_

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace tandem::rollout {

// Element i stands for messages 0 to i. `messages` are a template's: contents are texts, arguments of
// calls objects. Of an assistant's message, content and calls count; its other keys (refusal,
// reasoning_content, ids of calls) do not, because clients send them back or leave them out as they
// like. Null and absent are the same. Parts of contents that are images count by `image_digests`, in
// order: what they show, not where they came from.
std::vector<std::string> MessageDigests(const nlohmann::ordered_json& messages,
                                        const std::vector<std::string>& image_digests = {});

}  // namespace tandem::rollout

#endif  // TANDEM_SERVICES_ROLLOUT_SESSIONS_MESSAGE_DIGESTS_H_
