#include "services/rollout/openai/openai_server.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "common/rpc/status_conversion.h"
#include "common/status/status_macros.h"
#include "common/telemetry/log.h"
#include "services/rollout/openai/answer_size.h"
#include "services/rollout/openai/api_error.h"
#include "services/rollout/openai/bearer_token.h"

namespace tandem::rollout::openai {
namespace {

constexpr size_t kMaxBodyBytes = size_t{16} << 20;
// A body takes up to 40 times its size until it is tokens.
constexpr int64_t kMaxParsedBytes = int64_t{kMaxBodyBytes};
// Images under way: some of the largest at a time.
constexpr int64_t kMaxFetchedBytes = int64_t{256} << 20;
// No more of them are under way at a time than these bytes allow.
constexpr int kFetchThreads = 16;
constexpr char kModels[] = "/v1/models";
constexpr char kSessionHeader[] = "X-Session-Id";

bool IsHealth(const http::Request& head) { return head.path == "/health"; }
bool IsChat(const http::Request& head) { return head.path == "/v1/chat/completions"; }
bool IsGenerate(const http::Request& head) { return head.path == "/inference/v1/generate"; }
bool IsCompletion(const http::Request& head) {
  return IsChat(head) || IsGenerate(head) || head.path == "/v1/completions";
}
Route RouteOf(const http::Request& head) {
  return IsChat(head) ? Route::kChat : IsGenerate(head) ? Route::kGenerate : Route::kCompletion;
}
bool IsModels(const http::Request& head) {
  return head.path == kModels || absl::StartsWith(head.path, absl::StrCat(kModels, "/"));
}

absl::Status ExpectMethod(const http::Request& head, absl::string_view method) {
  if (head.method == method) return absl::OkStatus();
  return rpc::WithReason(absl::InvalidArgumentError(absl::StrCat(head.path, " answers ", method,
                                                                 " only, found ", head.method)),
                         kMethodNotAllowed);
}

absl::Status ExpectJson(const http::Request& head) {
  const std::string* type = head.Header("Content-Type");
  // A web page can send other types to an address of this machine without asking.
  if (type != nullptr && absl::StartsWithIgnoreCase(*type, kJsonType)) return absl::OkStatus();
  return rpc::WithReason(
      absl::InvalidArgumentError(absl::StrCat("expected Content-Type: application/json, found ",
                                              type == nullptr ? "none" : *type)),
      kUnsupportedMediaType);
}

absl::Status CheckTokenOf(const http::Request& head, const std::string& token) {
  const std::string* authorization = head.Header("Authorization");
  return CheckToken(token, authorization == nullptr ? nullptr : authorization->c_str());
}

}  // namespace

absl::StatusOr<std::unique_ptr<OpenAiServer>> OpenAiServer::Start(const OpenAiOptions& options,
                                                                  CallContext context) {
  ASSIGN_OR_RETURN(std::string token, ReadToken(options.token_file));
  RETURN_IF_ERROR(CheckListen(options.listen, !token.empty(), options.insecure));
  absl::StatusOr<const tool_calls::Format*> format =
      ChooseFormat(options.tool_call_parser, context.tokenizer);
  if (!format.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("tool-call-parser: ", format.status().message()));
  }
  context.tool_call_format = *format;
  context.processed_logprobs = options.processed_logprobs;
  if (options.image_fetcher != nullptr && !context.engine->image_token_id().has_value()) {
    return absl::InvalidArgumentError("allow-image-urls: the model takes no images");
  }
  context.image_fetcher = options.image_fetcher;
  std::unique_ptr<OpenAiServer> out(new OpenAiServer(std::move(token), std::move(context)));
  http::Options http;
  http.listen = options.listen;
  http.limits.max_connections = 4096;
  http.limits.descriptor_share = 0.5;
  http.limits.quick.num_threads = 4;
  http.limits.slow = {.num_threads = options.max_requests};
  absl::StatusOr<std::unique_ptr<http::Server>> server = http::Server::Start(http, *out);
  if (absl::IsUnavailable(server.status())) {
    return absl::UnavailableError(
        absl::StrCat("openai-listen: cannot listen on ", options.listen,
                     "; stop what uses the port, or choose another with --openai-listen (",
                     server.status().message(), ")"));
  }
  if (!server.ok()) return server.status();
  out->server_ = *std::move(server);
  telemetry::LogInfo("serving the OpenAI-compatible endpoint",
                     {{"address", out->address()},
                      {"model", absl::StrJoin(out->context_.model_names, ",")},
                      {"tool_calls", *format == nullptr ? "none" : (*format)->name},
                      {"token", !out->token_.empty()}});
  return out;
}

OpenAiServer::OpenAiServer(std::string token, CallContext context)
    : token_(std::move(token)),
      context_(std::move(context)),
      started_(absl::ToUnixSeconds(absl::Now())),
      parse_budget_(kMaxParsedBytes),
      fetch_budget_(kMaxFetchedBytes),
      fetch_pool_(kFetchThreads),
      answer_budget_(kMaxAnswerBytes) {
  context_.stopping = [this] { return stopping_.load(); };
  context_.text_limits = MakeTextLimits(context_.engine->limits(), context_.tokenizer);
  context_.parse_budget = &parse_budget_;
  context_.fetch_budget = &fetch_budget_;
  context_.fetch_pool = &fetch_pool_;
  context_.answer_budget = &answer_budget_;
}

OpenAiServer::~OpenAiServer() {
  if (server_ != nullptr) Drain(absl::InfinitePast());
}

void OpenAiServer::Drain(absl::Time deadline) {
  server_->AwaitIdle(deadline);
  stopping_ = true;
  // Calls that wait for tokens notice it soon and still respond.
  server_->AwaitIdle(absl::Now() + absl::Seconds(1));
  server_->Stop();
}

std::shared_ptr<Session> OpenAiServer::SessionOf(const http::Request& head) const {
  if (context_.sessions == nullptr) return nullptr;
  if (const std::string* id = head.Header(kSessionHeader); id != nullptr) {
    if (auto session = context_.sessions->Find(*id); session != nullptr) return session;
  }
  const std::string* authorization = head.Header("Authorization");
  return authorization == nullptr ? nullptr
                                  : context_.sessions->Find(BearerOf(authorization->c_str()));
}

absl::Status OpenAiServer::Check(const http::Request& head, bool in_session) const {
  if (IsHealth(head)) return ExpectMethod(head, "GET");
  if (!in_session) {
    RETURN_IF_ERROR(CheckTokenOf(head, token_));
  }
  if (IsModels(head)) return ExpectMethod(head, "GET");
  if (!IsCompletion(head)) {
    return absl::NotFoundError(absl::StrCat("no such path: ", head.path.substr(0, 200),
                                            "; see /v1/models, /v1/completions, "
                                            "/v1/chat/completions and /inference/v1/generate"));
  }
  RETURN_IF_ERROR(ExpectMethod(head, "POST"));
  return ExpectJson(head);
}

http::Admission OpenAiServer::Admit(const http::Request& head) {
  http::Admission admission;
  admission.slow = IsCompletion(head);
  admission.max_body_bytes = IsCompletion(head) ? kMaxBodyBytes : 0;
  // Its id is a key as good as the token.
  const bool in_session = SessionOf(head) != nullptr;
  admission.authenticated = in_session || (!token_.empty() && CheckTokenOf(head, token_).ok());
  if (const absl::Status status = Check(head, in_session); !status.ok()) {
    admission.refusal = ErrorResponse(status);
  }
  return admission;
}

http::Response OpenAiServer::Refuse(const http::Error& error) const { return ErrorResponse(error); }

void OpenAiServer::Serve(http::Exchange& http) {
  HttpExchange exchange(http);
  const http::Request& request = http.request();
  const absl::Time start = absl::Now();
  if (IsCompletion(request)) {
    ServeCompletion(context_, RouteOf(request), SessionOf(request), exchange);
  } else if (IsHealth(request)) {
    ServeHealth(exchange);
  } else {
    ServeModels(exchange,
                std::string(absl::StripPrefix(absl::StripPrefix(request.path, kModels), "/")));
  }
  telemetry::LogDebug("HTTP request", {{"method", request.method},
                                       {"path", request.path},
                                       {"code", http.code()},
                                       {"seconds", absl::ToDoubleSeconds(absl::Now() - start)}});
}

void OpenAiServer::ServeModels(HttpExchange& exchange, const std::string& name) const {
  const absl::Status known = CheckModel(context_, name);
  if (!known.ok()) return exchange.ReplyError(known);
  const auto describe = [&](const std::string& id) {
    nlohmann::ordered_json model;
    model["id"] = id;
    model["object"] = "model";
    model["created"] = started_;
    model["owned_by"] = "tandem";
    model["root"] = context_.model_path;
    model["max_model_len"] = context_.engine->limits().max_model_len;
    model["policy_version"] = context_.engine->Info().policy_version;
    return model;
  };
  if (!name.empty()) {
    return exchange.Reply(
        200, describe(name == context_.model_path ? context_.model_names.front() : name));
  }
  nlohmann::ordered_json models = nlohmann::ordered_json::array();
  for (const std::string& id : context_.model_names) models.push_back(describe(id));
  exchange.Reply(200, {{"object", "list"}, {"data", std::move(models)}});
}

void OpenAiServer::ServeHealth(HttpExchange& exchange) const {
  const EngineInfo info = context_.engine->Info();
  const bool serves = info.policy_version >= 0 && !info.draining && !info.paused;
  const char* state = info.draining             ? "draining"
                      : info.policy_version < 0 ? "stale"
                      : info.paused             ? "paused"
                                                : "serving";
  exchange.Reply(serves ? 200 : 503, {{"status", state}, {"policy_version", info.policy_version}});
}

}  // namespace tandem::rollout::openai
