// JudgeCall: one request to a judge behind an OpenAI-compatible URL, and what its failure means.
//
//   const JudgeAnswer answer = AskJudge(endpoint, body, absl::Now() + absl::Seconds(60), interrupted);
//   if (!answer.text.ok() && answer.may_retry) WaitAndRetry(answer.retry_after);
#ifndef TANDEM_TOOLS_TANDEM_REWARD_JUDGE_CALL_H_
#define TANDEM_TOOLS_TANDEM_REWARD_JUDGE_CALL_H_

#include <functional>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/http/client.h"

namespace tandem::reward {

struct JudgeEndpoint {
  http::Url url;        // of chat/completions
  std::string api_key;  // never shown; empty: none is sent
};

struct JudgeAnswer {
  absl::StatusOr<std::string> text;
  // Whether the same request may succeed later: after a timeout, a lost connection, a code that says
  // "busy" or "server error", or an answer without text. Not after a refusal or `cancelled`.
  bool may_retry = false;
  std::optional<absl::Duration> retry_after;  // as the judge asked
};

// Posts the body and returns the text of the first choice. Errors name the URL and the judge's own
// words: those of http::Post(), among them CANCELLED soon after `cancelled`, which may be null, is true;
// UNAVAILABLE for what may pass, FAILED_PRECONDITION for a refusal.
JudgeAnswer AskJudge(const JudgeEndpoint& judge, const std::string& body, absl::Time deadline,
                     const std::function<bool()>& cancelled);

}  // namespace tandem::reward

#endif  // TANDEM_TOOLS_TANDEM_REWARD_JUDGE_CALL_H_
