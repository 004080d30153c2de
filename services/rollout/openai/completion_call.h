// Serves one POST to /v1/completions, /v1/chat/completions or /inference/v1/generate, from body to end
// of response.
#ifndef TANDEM_SERVICES_ROLLOUT_OPENAI_COMPLETION_CALL_H_
#define TANDEM_SERVICES_ROLLOUT_OPENAI_COMPLETION_CALL_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/http/worker_pool.h"
#include "common/images/fetch/image_fetcher.h"
#include "common/tokenizer/tokenizer.h"
#include "services/rollout/engine/engine.h"
#include "services/rollout/openai/completion_request.h"
#include "services/rollout/openai/http_exchange.h"
#include "services/rollout/requests/byte_budget.h"
#include "services/rollout/requests/rollout_metrics.h"
#include "services/rollout/requests/text_limits.h"
#include "services/rollout/sessions/session_store.h"

namespace tandem::rollout::openai {

inline constexpr char kPolicyVersionHeader[] = "X-Tandem-Policy-Version";
// Incarnation of the trainer that published that version; 0 if none did.
inline constexpr char kIncarnationHeader[] = "X-Tandem-Incarnation";

// Shared by all calls; must outlive them.
struct CallContext {
  Engine* engine = nullptr;
  const tokenizer::Tokenizer* tokenizer = nullptr;  // may be null
  RolloutMetrics* metrics = nullptr;                // may be null
  SessionStore* sessions = nullptr;                 // whose calls are recorded; may be null
  // The model's names, at least one. /v1/models lists them; responses carry the first.
  std::vector<std::string> model_names;
  std::string model_path;          // its folder
  bool path_is_name = false;       // requests may name it by model_path too
  absl::Duration timeout;          // per request
  std::function<bool()> stopping;  // true when the server stops: calls must end
  // Set by the server.
  const tool_calls::Format* tool_call_format = nullptr;  // the model's; null: calls stay text
  bool processed_logprobs = false;
  std::shared_ptr<const images::ImageFetcher> image_fetcher;  // null: no image is fetched
  TextLimits text_limits;
  ByteBudget* parse_budget = nullptr;      // bodies that are parsed and tokenized
  ByteBudget* fetch_budget = nullptr;      // images that are being fetched
  http::WorkerPool* fetch_pool = nullptr;  // those of one call at a time
  ByteBudget* answer_budget = nullptr;     // complete responses that are put together
};

// NOT_FOUND if the name is another model's.
absl::Status CheckModel(const CallContext& context, const std::string& name);

// Sends the response, also for errors. Cancels the engine's requests if the client disconnects, or if
// the session that the call belongs to, which may be null, ends.
void ServeCompletion(const CallContext& context, Route route, std::shared_ptr<Session> session,
                     HttpExchange& exchange);

}  // namespace tandem::rollout::openai

#endif  // TANDEM_SERVICES_ROLLOUT_OPENAI_COMPLETION_CALL_H_
