#include "services/rollout/openai/completion_call.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "common/rpc/new_uuid.h"
#include "common/rpc/status_conversion.h"
#include "common/status/status_macros.h"
#include "services/rollout/openai/answer_size.h"
#include "services/rollout/openai/api_error.h"
#include "services/rollout/openai/completion_format.h"
#include "services/rollout/openai/completion_request.h"
#include "services/rollout/openai/generate_format.h"
#include "services/rollout/openai/generate_request.h"
#include "services/rollout/openai/generation_calls.h"
#include "services/rollout/openai/prompt_scores.h"
#include "services/rollout/openai/session_call.h"
#include "services/rollout/requests/wanted_weights.h"

namespace tandem::rollout::openai {
namespace {

// How soon a client that has gone is noticed while no token comes.
constexpr absl::Duration kLookForClient = absl::Milliseconds(200);

// `check` ends what is being fetched, once it fails; several threads call it.
ImageReading ImageReadingOf(const CallContext& context, std::function<absl::Status()> check) {
  Engine& engine = *context.engine;
  const std::optional<int32_t> id = engine.image_token_id();
  if (!id.has_value()) return {};
  ImageReading reading;
  reading.placeholder_id = *id;
  reading.written = engine.written_for_image();
  reading.find_placeholders = [&engine] { return engine.ImagePlaceholders(); };
  reading.grid_of = [&engine](const ImageFile& file, const std::string& place,
                              images::ImageForm form) {
    return engine.ImagePlaceholderGrid(file, place, form);
  };
  if (context.image_fetcher == nullptr) return reading;
  reading.fetch_pool = context.fetch_pool;
  reading.fetch = [&context, check = std::move(check)](
                      const std::string& url,
                      const std::function<bool()>& is_moot) -> absl::StatusOr<std::string> {
    const auto go_on = [&] {
      return is_moot() ? absl::CancelledError("another image of the chat failed") : check();
    };
    const images::ImageFetcher& fetcher = *context.image_fetcher;
    ASSIGN_OR_RETURN(const ByteBudget::Share share,
                     context.fetch_budget->Take(fetcher.max_bytes(), go_on));
    absl::StatusOr<std::string> file = fetcher.Fetch(url, [&go_on] { return !go_on().ok(); });
    RETURN_IF_ERROR(go_on());
    return file;
  };
  return reading;
}

class Call {
 public:
  Call(const CallContext& context, std::shared_ptr<Session> session, HttpExchange& exchange)
      : context_(context),
        session_(std::move(session)),
        exchange_(exchange),
        deadline_(absl::Now() + context.timeout) {}

  // An error, where nothing was answered yet.
  absl::Status Run(Route route);

 private:
  // Reads the body into request_. What the body took is free when it returns.
  absl::Status Parse(Route route);
  // Gives the request the session's parameters.
  absl::Status JoinSession();
  absl::Status Submit(GenerationCalls& calls);
  absl::StatusOr<std::vector<ScoreResult>> Score();
  std::unique_ptr<AnswerFormat> MakeFormat(std::vector<ScoreResult> scores) const;
  // Until `next` has something; ends with the client, the deadline or the server.
  absl::Status CheckOn() const;
  absl::StatusOr<GenerationCalls::News> Next(GenerationCalls& calls);
  absl::Status ReplyWhole(GenerationCalls& calls, AnswerFormat& format);
  absl::Status ReplyStream(GenerationCalls& calls, AnswerFormat& format);
  HttpExchange::Headers Headers(const AnswerFormat& format) const {
    return {{kPolicyVersionHeader, absl::StrCat(format.policy_version())},
            {kIncarnationHeader, absl::StrCat(format.incarnation())}};
  }
  // Chunks for a request that only echoes its prompts.
  std::vector<SampleChunk> EmptyChunks() const;

  const CallContext& context_;
  const std::shared_ptr<Session> session_;  // may be null
  HttpExchange& exchange_;
  const absl::Time deadline_;
  CompletionRequest request_;
  std::optional<SessionCall> recorder_;  // unset without a session
};

absl::Status Call::Run(Route route) {
  RETURN_IF_ERROR(Parse(route));
  if (session_ != nullptr) {
    RETURN_IF_ERROR(JoinSession());  // an agent may name any model: the session stands for it
  } else {
    RETURN_IF_ERROR(CheckModel(context_, request_.model));
  }
  // Before the engine works for an answer that is too large.
  if (!request_.stream) {
    RETURN_IF_ERROR(CheckAnswerBytes(request_, {}));
  }
  std::vector<ScoreResult> scores;
  if (request_.echo && request_.num_logprobs.has_value()) {
    ASSIGN_OR_RETURN(scores, Score());
  }
  const std::unique_ptr<AnswerFormat> format = MakeFormat(std::move(scores));
  GenerationCalls calls(*context_.engine, context_.metrics);
  if (request_.generates) {
    RETURN_IF_ERROR(Submit(calls));
  }
  return request_.stream ? ReplyStream(calls, *format) : ReplyWhole(calls, *format);
}

absl::Status Call::Parse(Route route) {
  const auto check = [this] { return CheckOn(); };
  ASSIGN_OR_RETURN(const ByteBudget::Share share,
                   context_.parse_budget->Take(exchange_.request().body.size(), check));
  ASSIGN_OR_RETURN(const nlohmann::ordered_json body, exchange_.TakeJson());
  const ParseOptions options{.text = context_.text_limits,
                             .check = check,
                             .tool_call_format = context_.tool_call_format,
                             .processed_logprobs = context_.processed_logprobs,
                             .images = ImageReadingOf(context_, check),
                             .session = session_.get()};
  if (route == Route::kGenerate) {
    ASSIGN_OR_RETURN(request_, ParseGenerateRequest(body, options));
    if (request_.generation.id.empty()) request_.generation.id = rpc::NewUuid();
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(
      request_, ParseCompletionRequest(body, route == Route::kChat, context_.tokenizer, options));
  return absl::OkStatus();
}

std::unique_ptr<AnswerFormat> Call::MakeFormat(std::vector<ScoreResult> scores) const {
  const EngineInfo info = context_.engine->Info();
  const int64_t incarnation = info.policy_version < 0 ? 0 : info.incarnation;
  const std::string& model = context_.model_names.front();
  if (request_.route == Route::kGenerate) {
    return std::make_unique<GenerateFormat>(request_, model, info.policy_version, incarnation);
  }
  return std::make_unique<CompletionFormat>(request_, context_.tokenizer, model, std::move(scores),
                                            info.policy_version, incarnation);
}

absl::Status Call::JoinSession() {
  RETURN_IF_ERROR(CheckWantedWeights(session_->request().incarnation(), *context_.engine));
  SetSampling(session_->request().sampling(), request_.generation);
  recorder_.emplace(session_, request_, context_.tokenizer);
  return absl::OkStatus();
}

absl::Status Call::Submit(GenerationCalls& calls) {
  int32_t first_choice = 0;
  for (const CompletionPrompt& prompt : request_.prompts) {
    GenerationRequest generation = request_.generation;
    generation.prompt_ids = prompt.ids;
    ASSIGN_OR_RETURN(generation.images, context_.engine->ReadImages(prompt.images, prompt.ids));
    if (recorder_.has_value()) {
      RETURN_IF_ERROR(recorder_->Begin(generation));
    }
    RETURN_IF_ERROR(calls.Add(std::move(generation), first_choice));
    first_choice += request_.generation.n;
  }
  return absl::OkStatus();
}

absl::Status Call::CheckOn() const {
  if (exchange_.ClientGone()) return absl::CancelledError("the client disconnected");
  if (context_.stopping()) return absl::UnavailableError("the rollout is shutting down");
  if (session_ != nullptr) {
    RETURN_IF_ERROR(session_->CheckOpen());
  }
  if (absl::Now() < deadline_) return absl::OkStatus();
  return absl::DeadlineExceededError(absl::StrCat("the request took longer than ",
                                                  absl::FormatDuration(context_.timeout),
                                                  " (rollout.request_timeout_s)"));
}

absl::StatusOr<std::vector<ScoreResult>> Call::Score() {
  PromptScores scores(*context_.engine);
  for (const CompletionPrompt& prompt : request_.prompts) {
    RETURN_IF_ERROR(scores.Add(prompt.ids, *request_.num_logprobs));
  }
  while (true) {
    ASSIGN_OR_RETURN(const bool done, scores.Wait(absl::Now() + kLookForClient));
    if (done) return scores.Take();
    RETURN_IF_ERROR(CheckOn());
  }
}

absl::StatusOr<GenerationCalls::News> Call::Next(GenerationCalls& calls) {
  if (session_ != nullptr) {
    RETURN_IF_ERROR(session_->CheckOpen());
  }
  while (true) {
    ASSIGN_OR_RETURN(GenerationCalls::News news, calls.Next(absl::Now() + kLookForClient));
    if (news.chunk.has_value() || news.done) return news;
    RETURN_IF_ERROR(CheckOn());
  }
}

std::vector<SampleChunk> Call::EmptyChunks() const {
  std::vector<SampleChunk> chunks(request_.prompts.size() * request_.generation.n);
  for (size_t i = 0; i < chunks.size(); ++i) {
    chunks[i].index = static_cast<int32_t>(i);
    chunks[i].finish_reason = FinishReason::kLength;
  }
  return chunks;
}

absl::Status Call::ReplyWhole(GenerationCalls& calls, AnswerFormat& format) {
  std::vector<SampleChunk> chunks = EmptyChunks();
  for (bool done = !request_.generates; !done;) {
    ASSIGN_OR_RETURN(GenerationCalls::News news, Next(calls));
    done = news.done;
    // One for each sample, as nothing is streamed.
    if (news.chunk.has_value()) chunks[news.chunk->index] = *std::move(news.chunk);
  }
  RETURN_IF_ERROR(CheckAnswerBytes(request_, chunks));
  ASSIGN_OR_RETURN(
      const ByteBudget::Share share,
      context_.answer_budget->Take(AnswerBytes(request_, chunks), [this] { return CheckOn(); }));
  const nlohmann::ordered_json body = format.Whole(chunks);
  if (recorder_.has_value() && request_.generates) {
    for (const SampleChunk& chunk : chunks) recorder_->Add(chunk);
  }
  exchange_.Reply(200, body, Headers(format));
  return absl::OkStatus();
}

absl::Status Call::ReplyStream(GenerationCalls& calls, AnswerFormat& format) {
  std::vector<SampleChunk> ready = request_.generates ? std::vector<SampleChunk>() : EmptyChunks();
  bool done = !request_.generates;
  // Until the first tokens arrive, an error still sets the HTTP status.
  bool begun = false;
  while (true) {
    if (!done) {
      absl::StatusOr<GenerationCalls::News> news = Next(calls);
      if (!news.ok()) {
        if (!begun) return news.status();
        exchange_.SendEvent(Dump(ErrorBody(news.status())));
        exchange_.EndEvents();
        return absl::OkStatus();
      }
      done = news->done;
      if (news->chunk.has_value()) ready.push_back(*std::move(news->chunk));
    }
    for (const SampleChunk& chunk : std::exchange(ready, {})) {
      if (recorder_.has_value() && request_.generates) recorder_->Add(chunk);
      for (const nlohmann::ordered_json& event : format.Events(chunk)) {
        if (!std::exchange(begun, true)) exchange_.BeginEvents(Headers(format));
        // The requests end with the calls.
        if (!exchange_.SendEvent(Dump(event))) return absl::OkStatus();
      }
    }
    if (done) break;
  }
  if (request_.include_usage) exchange_.SendEvent(Dump(format.UsageEvent()));
  exchange_.SendEvent("[DONE]");
  exchange_.EndEvents();
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckModel(const CallContext& context, const std::string& name) {
  const std::vector<std::string>& names = context.model_names;
  if (name.empty() || (context.path_is_name && name == context.model_path) ||
      std::find(names.begin(), names.end(), name) != names.end()) {
    return absl::OkStatus();
  }
  return rpc::WithReason(
      absl::NotFoundError(absl::StrCat("the model \"", name.substr(0, 200),
                                       "\" does not exist here; expected \"",
                                       absl::StrJoin(names, "\" or \""), "\", see GET /v1/models")),
      "MODEL_NOT_FOUND");
}

void ServeCompletion(const CallContext& context, Route route, std::shared_ptr<Session> session,
                     HttpExchange& exchange) {
  const absl::Status status = Call(context, std::move(session), exchange).Run(route);
  if (status.ok()) return;
  exchange.ReplyError(status,
                      route == Route::kGenerate ? FieldNames::kGenerate : FieldNames::kOpenAi);
}

}  // namespace tandem::rollout::openai
