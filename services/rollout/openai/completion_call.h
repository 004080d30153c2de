// One POST of /v1/completions or /v1/chat/completions, from its body to the end of its answer.
#ifndef TANDEM_SERVICES_ROLLOUT_OPENAI_COMPLETION_CALL_H_
#define TANDEM_SERVICES_ROLLOUT_OPENAI_COMPLETION_CALL_H_

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/tokenizer/tokenizer.h"
#include "services/rollout/engine/engine.h"
#include "services/rollout/openai/http_exchange.h"
#include "services/rollout/service/rollout_metrics.h"

namespace tandem::rollout::openai {

inline constexpr char kPolicyVersionHeader[] = "X-Tandem-Policy-Version";
// Life of the trainer that published that version; 0 where none did.
inline constexpr char kIncarnationHeader[] = "X-Tandem-Incarnation";

// What all calls share; outlives them.
struct CallContext {
  Engine* engine = nullptr;
  const tokenizer::Tokenizer* tokenizer = nullptr;  // may be null
  RolloutMetrics* metrics = nullptr;                // may be null
  // The folder's last component, and the folder itself, name the model.
  std::string model;
  std::string model_path;
  absl::Duration timeout;          // of a request
  std::function<bool()> stopping;  // the server ends: calls are to end too
};

// NOT_FOUND where the name is another model's.
absl::Status CheckModel(const CallContext& context, const std::string& name);

// Answers, errors included. While the engine works, a client that goes away ends its requests
// there.
void ServeCompletion(const CallContext& context, bool chat, HttpExchange& exchange);

}  // namespace tandem::rollout::openai

#endif  // TANDEM_SERVICES_ROLLOUT_OPENAI_COMPLETION_CALL_H_
