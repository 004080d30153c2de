// OpenAiServer: OpenAI-compatible HTTP endpoint of the engine, for OpenAI clients and the
// evaluation tools that use them.
//
//   POST /v1/completions, /v1/chat/completions   complete or streamed (completion_request.h)
//   POST /inference/v1/generate                  the same with token ids (generate_request.h)
//   GET  /v1/models, /v1/models/NAME             the model by each of its names, with its version
//   GET  /health                                 200 while a version is live, 503 otherwise
//
// A POST whose API key, or X-Session-Id header, is an open session's id is recorded there
// (sessions/session.h).
//
// Uses the plain HTTP/1.1 server of common/http, which limits what clients may cost. Errors are
// OpenAI's objects (api_error.h).
#ifndef TANDEM_SERVICES_ROLLOUT_OPENAI_OPENAI_SERVER_H_
#define TANDEM_SERVICES_ROLLOUT_OPENAI_OPENAI_SERVER_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/http/server.h"
#include "common/http/worker_pool.h"
#include "common/images/fetch/image_fetcher.h"
#include "services/rollout/openai/completion_call.h"

namespace tandem::rollout::openai {

struct OpenAiOptions {
  std::string listen;      // HOST:PORT; port 0 picks a free one; empty: no server
  std::string token_file;  // see ReadToken()
  bool insecure = false;   // allow other machines without a token
  // Maximum concurrent completions; more get 429. Each uses a thread.
  int max_requests = 1024;
  // How the model writes calls of functions: a name of tool_calls::Formats(), "auto" for what its
  // chat template says, or "none".
  std::string tool_call_parser = "auto";
  bool processed_logprobs = false;  // instead of raw ones
  // Fetches images that chats name by http and https URLs; null refuses them.
  std::shared_ptr<const images::ImageFetcher> image_fetcher;
};

// One thread per completion waits for tokens and for the client. All arguments must outlive the
// server.
class OpenAiServer final : private http::Handler {
 public:
  // Serves once it returns. INVALID_ARGUMENT for bad options, UNAVAILABLE if the address cannot be
  // bound. The server sets `context.stopping` itself.
  static absl::StatusOr<std::unique_ptr<OpenAiServer>> Start(const OpenAiOptions& options,
                                                             CallContext context);
  // Cancels unfinished calls.
  ~OpenAiServer() override;
  OpenAiServer(const OpenAiServer&) = delete;
  OpenAiServer& operator=(const OpenAiServer&) = delete;

  // HOST:PORT with the real port.
  const std::string& address() const { return server_->address(); }
  int port() const { return server_->port(); }

  // Waits for calls in flight, cancels the rest at `deadline`, and stops. The engine must already
  // refuse new requests.
  void Drain(absl::Time deadline);

 private:
  OpenAiServer(std::string token, CallContext context);
  http::Admission Admit(const http::Request& head) override;
  void Serve(http::Exchange& exchange) override;
  http::Response Refuse(const http::Error& error) const override;
  absl::Status Check(const http::Request& head, bool in_session) const;
  // The open session that the request belongs to; null if there is none.
  std::shared_ptr<Session> SessionOf(const http::Request& head) const;
  void ServeModels(HttpExchange& exchange, const std::string& name) const;
  void ServeHealth(HttpExchange& exchange) const;

  const std::string token_;
  CallContext context_;
  const int64_t started_;  // Unix seconds
  std::atomic<bool> stopping_{false};
  ByteBudget parse_budget_;
  ByteBudget fetch_budget_;
  http::WorkerPool fetch_pool_;
  ByteBudget answer_budget_;
  std::unique_ptr<http::Server> server_;  // destroyed first
};

}  // namespace tandem::rollout::openai

#endif  // TANDEM_SERVICES_ROLLOUT_OPENAI_OPENAI_SERVER_H_
