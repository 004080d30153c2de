// What the usage examples in services/rollout/sessions leave to the reader.
#ifndef TANDEM_TESTS_HEADER_EXAMPLES_SERVICES_ROLLOUT_SESSIONS_H_
#define TANDEM_TESTS_HEADER_EXAMPLES_SERVICES_ROLLOUT_SESSIONS_H_

#include <memory>
#include <string>
#include <vector>

#include "nlohmann/json.hpp"
#include "services/rollout/sessions/message_digests.h"

namespace tandem::rollout::past_turns_example {
extern PastTurns turns;
extern PastTurn turn;
extern nlohmann::ordered_json messages;
extern std::vector<std::string> digests_with_answer;
inline constexpr header_examples::AnyFunction Continue;
}  // namespace tandem::rollout::past_turns_example

namespace tandem::rollout::session_example {
extern std::shared_ptr<Session> session;
extern GenerationRequest generation;
extern int64_t num_prompt_tokens;
extern int32_t index;
extern v1::RecordedCall recorded;
extern PastTurn turn;
extern std::vector<std::string> digests;
}  // namespace tandem::rollout::session_example

namespace tandem::rollout::session_store_example {
extern SessionStore sessions;
extern v1::OpenSessionRequest request;
extern RequestLimits limits;
extern std::string authority, key, id;
inline constexpr header_examples::AnyFunction Record;
}  // namespace tandem::rollout::session_store_example

#endif  // TANDEM_TESTS_HEADER_EXAMPLES_SERVICES_ROLLOUT_SESSIONS_H_
