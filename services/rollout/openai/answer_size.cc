#include "services/rollout/openai/answer_size.h"

#include "absl/strings/str_cat.h"
#include "common/rpc/status_conversion.h"

namespace tandem::rollout::openai {
namespace {

constexpr int64_t kChoiceBytes = 64;    // names and braces
constexpr int64_t kIdBytes = 6;         // "12345,"
constexpr int64_t kLogprobBytes = 32;   // a token's text, log-prob and offset
constexpr int64_t kTopTokenBytes = 32;  // the text and log-prob of one of its alternatives

int64_t Size(size_t size) { return static_cast<int64_t>(size); }

}  // namespace

int64_t AnswerBytes(const CompletionRequest& request, const std::vector<SampleChunk>& chunks) {
  const int64_t token_bytes =
      request.num_logprobs.has_value()
          ? kLogprobBytes + kTopTokenBytes * static_cast<int64_t>(*request.num_logprobs)
          : 0;
  const int64_t id_bytes =
      request.return_token_ids || request.route == Route::kGenerate ? kIdBytes : 0;
  int64_t bytes = 0;
  for (const CompletionPrompt& prompt : request.prompts) {
    const int64_t num_ids = Size(prompt.ids.size());
    int64_t choice = kChoiceBytes;
    if (request.echo) choice += Size(prompt.text.size()) + num_ids * token_bytes;
    if (!request.chat()) choice += num_ids * id_bytes;
    bytes += choice * request.generation.n;
  }
  for (const SampleChunk& chunk : chunks) {
    bytes += Size(chunk.text.size()) + Size(chunk.token_ids.size()) * (token_bytes + id_bytes);
  }
  return bytes;
}

absl::Status CheckAnswerBytes(const CompletionRequest& request,
                              const std::vector<SampleChunk>& chunks) {
  const int64_t bytes = AnswerBytes(request, chunks);
  if (bytes <= kMaxAnswerBytes) return absl::OkStatus();
  return rpc::InvalidField(
      "n", absl::StrCat("expected a response of at most ", kMaxAnswerBytes >> 20,
                        " MiB, found about ", bytes >> 20, " MiB for ", request.prompts.size(),
                        " prompts of ", request.generation.n,
                        " choices each; lower n, logprobs or max_tokens, leave out echo, send "
                        "fewer prompts, or set stream"));
}

}  // namespace tandem::rollout::openai
