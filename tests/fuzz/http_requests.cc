// What anybody who reaches an HTTP port can send: the bytes of a connection, through the head, its
// Host and Origin, and the body, and of the OpenAI-compatible port on to what the engine checks.
//
// The first byte says how: even, the rest is a connection in one piece, and again in pieces of as
// many bytes; odd, the rest is the body of a completion (1 mod 4) or of a chat.
#include <cstdlib>
#include <string>

#include "common/http/host_policy.h"
#include "common/http/request_reader.h"
#include "services/rollout/engine/limits.h"
#include "services/rollout/openai/api_error.h"
#include "services/rollout/openai/completion_request.h"
#include "services/rollout/openai/generate_request.h"
#include "services/rollout/openai/json_body.h"
#include "tests/support/tiny_model.h"

namespace {

using tandem::http::RequestReader;
using State = RequestReader::State;

constexpr size_t kMaxHeadBytes = 4096;
constexpr size_t kMaxBodyBytes = 8192;

void Require(bool holds) {
  if (!holds) std::abort();
}

void Read(RequestReader& reader, std::string_view text, size_t piece) {
  for (size_t at = 0; at < text.size(); at += piece) {
    if (reader.Feed(text.substr(at, piece)) == State::kHeadDone &&
        reader.ExpectBody(kMaxBodyBytes)) {
      reader.Feed("");
    }
    Require(reader.state() != State::kHeadDone);
    if (reader.state() == State::kDone || reader.state() == State::kFailed) return;
    Require(reader.size_bytes() <= text.size() + piece);
  }
}

const tandem::tokenizer::Tokenizer& Tokenizer() {
  static const tandem::testing::TempFolder folder;
  static const auto tokenizer = [] {
    const std::string path = tandem::testing::WriteTinyModel(folder);
    folder.Write("model/chat_template.jinja",
                 "{% for m in messages %}{{ m.role }}:{{ m.content }}{% endfor %}"
                 "{{ tools }}{{ add_generation_prompt }}");
    return tandem::tokenizer::Tokenizer::Load(path);
  }();
  Require(tokenizer.ok());
  return **tokenizer;
}

void Complete(const std::string& body, bool chat) {
  namespace openai = tandem::rollout::openai;
  const auto json = openai::ParseJsonBody(body);
  const openai::ParseOptions options{.tool_call_format = &tandem::tool_calls::Hermes()};
  if (json.ok()) {
    const auto tokens = openai::ParseGenerateRequest(*json, options);
    if (!tokens.ok()) Require(openai::HttpCode(tokens.status()) == 400);
  }
  const auto request = json.ok()
                           ? openai::ParseCompletionRequest(*json, chat, &Tokenizer(), options)
                           : json.status();
  if (!request.ok()) {
    const int code = openai::ErrorResponse(request.status()).code;
    Require(code >= 400 && code < 500);
    return;
  }
  Require(!request->prompts.empty());
  for (const openai::CompletionPrompt& prompt : request->prompts) {
    tandem::rollout::GenerationRequest generation = request->generation;
    Require(generation.n >= 1 && generation.n <= tandem::rollout::kMaxSamples);
    generation.prompt_ids = prompt.ids;
    (void)tandem::rollout::CheckRequest(
        generation, {.vocab_size = 15, .max_model_len = 64, .has_tokenizer = true});
  }
}

void Connect(std::string_view text, size_t piece) {
  RequestReader whole(kMaxHeadBytes);
  Read(whole, text, text.size());
  RequestReader pieces(kMaxHeadBytes);
  Read(pieces, text, piece);
  // Where the pieces end makes no difference, but to which limit is met first.
  if (text.size() < kMaxHeadBytes) {
    Require((whole.state() == State::kDone) == (pieces.state() == State::kDone));
  }
  if (whole.state() == State::kFailed) Require(whole.error().code >= 400);
  if (whole.state() != State::kDone || pieces.state() != State::kDone) return;
  const tandem::http::Request& request = whole.request();
  Require(request.method == pieces.request().method && request.path == pieces.request().path &&
          request.headers == pieces.request().headers && request.body == pieces.request().body);
  Require(request.body.size() <= kMaxBodyBytes);

  static const auto policy = tandem::http::HostPolicy::Make({"127.0.0.1", 8000}, {".x.example"});
  Require(policy.ok());
  (void)policy->CheckHost(request);
  (void)policy->CheckOrigin(request);
  (void)request.QueryValue("step");
  Complete(request.body, request.path == "/v1/chat/completions");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const std::string text(reinterpret_cast<const char*>(data + 1), size - 1);
  if (data[0] % 2 == 1) {
    Complete(text, /*chat=*/data[0] % 4 == 3);
  } else {
    Connect(text, 1 + data[0]);
  }
  return 0;
}
