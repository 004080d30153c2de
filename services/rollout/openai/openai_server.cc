#include "services/rollout/openai/openai_server.h"

#include <civetweb.h>

#include <system_error>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/net/host_port.h"
#include "common/rpc/status_conversion.h"
#include "common/status/status_macros.h"
#include "common/telemetry/log.h"
#include "services/rollout/openai/api_error.h"
#include "services/rollout/openai/bearer_token.h"

namespace tandem::rollout::openai {
namespace {

// Threads beside those of the requests that are answered: for health and for refusals.
constexpr int kSpareThreads = 32;
// A client that neither sends nor takes anything for longer is given up.
constexpr char kClientTimeoutMs[] = "30000";

absl::Status ExpectMethod(const HttpExchange& exchange, std::string_view method) {
  if (exchange.method() == method) return absl::OkStatus();
  return rpc::WithReason(absl::InvalidArgumentError(absl::StrCat(
                             std::string(exchange.path()), " answers ", std::string(method),
                             " only, found ", std::string(exchange.method()))),
                         kMethodNotAllowed);
}

}  // namespace

absl::StatusOr<std::unique_ptr<OpenAiServer>> OpenAiServer::Start(const OpenAiOptions& options,
                                                                  CallContext context) {
  ASSIGN_OR_RETURN(std::string token, ReadToken(options.token_file));
  RETURN_IF_ERROR(CheckListen(options.listen, !token.empty(), options.insecure));
  mg_init_library(0);
  std::unique_ptr<OpenAiServer> out(
      new OpenAiServer(options, std::move(token), std::move(context)));
  const std::string num_threads = absl::StrCat(options.max_requests + kSpareThreads);
  const char* settings[] = {"listening_ports",
                            options.listen.c_str(),
                            "num_threads",
                            num_threads.c_str(),
                            "connection_queue",
                            "256",
                            "listen_backlog",
                            "1024",
                            "tcp_nodelay",
                            "1",
                            "request_timeout_ms",
                            kClientTimeoutMs,
                            nullptr};
  out->context_handle_ = mg_start(nullptr, nullptr, settings);
  if (out->context_handle_ == nullptr) {
    return absl::UnavailableError(
        absl::StrCat("openai-listen: cannot listen on ", options.listen,
                     "; stop what uses the port, or choose another with --openai-listen"));
  }
  mg_server_port port;
  if (mg_get_server_ports(out->context_handle_, 1, &port) == 1) out->port_ = port.port;
  ASSIGN_OR_RETURN(net::HostPort address, net::ParseListenAddress(options.listen));
  address.port = out->port_;
  out->address_ = address.ToString();
  mg_set_request_handler(
      out->context_handle_, "/",
      [](mg_connection* connection, void* self) {
        return static_cast<OpenAiServer*>(self)->Answer(connection);
      },
      out.get());
  telemetry::LogInfo("the OpenAI-compatible endpoint serves", {{"address", out->address_},
                                                               {"model", out->context_.model},
                                                               {"token", !out->token_.empty()}});
  return out;
}

OpenAiServer::OpenAiServer(const OpenAiOptions& options, std::string token, CallContext context)
    : options_(options),
      token_(std::move(token)),
      context_(std::move(context)),
      started_(absl::ToUnixSeconds(absl::Now())) {
  context_.stopping = [this] { return stopping_.load(); };
}

OpenAiServer::~OpenAiServer() { Drain(absl::InfinitePast()); }

void OpenAiServer::Drain(absl::Time deadline) {
  if (context_handle_ == nullptr) return;
  const auto idle = [this] {
    mu_.AssertHeld();
    return num_active_ == 0;
  };
  {
    absl::MutexLock lock(&mu_);
    mu_.AwaitWithDeadline(absl::Condition(&idle), deadline);
  }
  stopping_ = true;
  // Those that wait for tokens see it soon, and still answer.
  {
    absl::MutexLock lock(&mu_);
    mu_.AwaitWithTimeout(absl::Condition(&idle), absl::Seconds(1));
  }
  mg_stop(std::exchange(context_handle_, nullptr));
}

int OpenAiServer::Answer(mg_connection* connection) {
  {
    absl::MutexLock lock(&mu_);
    ++num_active_;
  }
  HttpExchange exchange(connection);
  const absl::Time start = absl::Now();
  // civetweb's threads have stacks of 100 KB, too little for templates and regular expressions.
  try {
    std::thread([&] { Route(exchange); }).join();
  } catch (const std::system_error& error) {
    exchange.ReplyError(absl::ResourceExhaustedError(
        absl::StrCat("no thread for the request: ", error.what(), "; try again later")));
  }
  telemetry::LogDebug("an HTTP request was answered",
                      {{"method", std::string(exchange.method())},
                       {"path", std::string(exchange.path())},
                       {"code", exchange.code()},
                       {"seconds", absl::ToDoubleSeconds(absl::Now() - start)}});
  absl::MutexLock lock(&mu_);
  --num_active_;
  // civetweb wants a code; 499 is what others write down for a client that has gone.
  return exchange.code() == 0 ? 499 : exchange.code();
}

void OpenAiServer::Route(HttpExchange& exchange) {
  const std::string path(exchange.path());
  const bool chat = path == "/v1/chat/completions";
  const bool completes = chat || path == "/v1/completions";
  const bool models = path == "/v1/models" || absl::StartsWith(path, "/v1/models/");
  absl::Status status;
  if (path == "/health") {
    status = ExpectMethod(exchange, "GET");
    if (status.ok()) return ServeHealth(exchange);
    return exchange.ReplyError(status);
  }
  status = CheckToken(token_, exchange.Header("Authorization"));
  if (status.ok() && !completes && !models) {
    status = absl::NotFoundError(absl::StrCat("there is no ", path.substr(0, 200),
                                              "; see /v1/models, /v1/completions and "
                                              "/v1/chat/completions"));
  }
  if (status.ok()) status = ExpectMethod(exchange, models ? "GET" : "POST");
  if (status.ok() && completes) {
    absl::MutexLock lock(&mu_);
    if (num_active_ > options_.max_requests) {
      status = rpc::WithReason(
          absl::ResourceExhaustedError(absl::StrCat("expected at most ", options_.max_requests,
                                                    " requests at once; try again later")),
          "TOO_MANY_REQUESTS");
    }
  }
  if (!status.ok()) return exchange.ReplyError(status);
  if (completes) return ServeCompletion(context_, chat, exchange);
  ServeModels(exchange, path.size() > 11 ? path.substr(11) : "");
}

void OpenAiServer::ServeModels(HttpExchange& exchange, const std::string& name) const {
  const absl::Status known = CheckModel(context_, name);
  if (!known.ok()) return exchange.ReplyError(known);
  nlohmann::ordered_json model;
  model["id"] = context_.model;
  model["object"] = "model";
  model["created"] = started_;
  model["owned_by"] = "tandem";
  model["root"] = context_.model_path;
  model["max_model_len"] = context_.engine->limits().max_model_len;
  model["policy_version"] = context_.engine->Info().policy_version;
  if (!name.empty()) return exchange.Reply(200, model);
  exchange.Reply(200, {{"object", "list"}, {"data", nlohmann::ordered_json::array({model})}});
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
