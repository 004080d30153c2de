// SessionCall: records the choices of one request in its session.
#ifndef TANDEM_SERVICES_ROLLOUT_OPENAI_SESSION_CALL_H_
#define TANDEM_SERVICES_ROLLOUT_OPENAI_SESSION_CALL_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "common/tokenizer/tokenizer.h"
#include "services/rollout/engine/generation.h"
#include "services/rollout/openai/completion_request.h"
#include "services/rollout/sessions/session.h"

namespace tandem::rollout::openai {

// Used by one thread. Choice i is sample i % n of prompt i / n, as in AnswerFormat.
class SessionCall {
 public:
  // The request and the tokenizer, which may be null, must outlive it.
  SessionCall(std::shared_ptr<Session> session, const CompletionRequest& request,
              const tokenizer::Tokenizer* tokenizer)
      : session_(std::move(session)), request_(request), tokenizer_(tokenizer) {}

  // Begins the next prompt, whose limits it sets. Errors: Session::Begin().
  absl::Status Begin(GenerationRequest& generation);

  // Adds new tokens of a choice; with its last ones it is recorded. Call before the client gets them:
  // its next call may follow at once.
  void Add(const SampleChunk& chunk);

 private:
  void Record(SampleChunk chunk);
  // What a later prompt may repeat of the choice; unset: nothing. Sets the digests of a chat.
  std::optional<PastTurn> TurnOf(const SampleChunk& chunk, const nlohmann::ordered_json& answer,
                                 std::vector<std::string>& digests) const;

  const std::shared_ptr<Session> session_;
  const CompletionRequest& request_;
  const tokenizer::Tokenizer* const tokenizer_;
  std::vector<Session::Call> calls_;        // by prompt
  std::map<int32_t, SampleChunk> partial_;  // by choice
};

}  // namespace tandem::rollout::openai

#endif  // TANDEM_SERVICES_ROLLOUT_OPENAI_SESSION_CALL_H_
