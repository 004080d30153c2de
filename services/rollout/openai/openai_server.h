// OpenAiServer: the engine over HTTP, as OpenAI's clients and the evaluation tools that use them
// expect it.
//
//   POST /v1/completions, /v1/chat/completions   whole or streamed (completion_request.h)
//   GET  /v1/models, /v1/models/NAME             the one model, and the version that serves
//   GET  /health                                 200 while a version serves, 503 otherwise
//
// Plain HTTP/1.1 of common/http, which says what clients may cost. Errors are OpenAI's objects
// (api_error.h).
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
#include "services/rollout/openai/completion_call.h"

namespace tandem::rollout::openai {

struct OpenAiOptions {
  std::string listen;      // HOST:PORT; port 0 takes a free one. No server where empty
  std::string token_file;  // see ReadToken()
  bool insecure = false;   // other machines need no token
  // Completions that are answered at once; more are refused with 429. Each costs a thread.
  int max_requests = 1024;
};

// A thread for each completion, which waits for tokens and for its client. What is passed in
// outlives the server.
class OpenAiServer final : private http::Handler {
 public:
  // Serves when it returns. INVALID_ARGUMENT for options that do not fit, UNAVAILABLE where the
  // address cannot be bound. `context.stopping` is the server's to set.
  static absl::StatusOr<std::unique_ptr<OpenAiServer>> Start(const OpenAiOptions& options,
                                                             CallContext context);
  // Cancels what still runs.
  ~OpenAiServer() override;
  OpenAiServer(const OpenAiServer&) = delete;
  OpenAiServer& operator=(const OpenAiServer&) = delete;

  // HOST:PORT with the real port.
  const std::string& address() const { return server_->address(); }
  int port() const { return server_->port(); }

  // Waits until the calls under way have ended, cancels the rest at `deadline`, and stops. The
  // engine refuses new ones by then.
  void Drain(absl::Time deadline);

 private:
  OpenAiServer(std::string token, CallContext context);
  http::Admission Admit(const http::Request& head) override;
  void Serve(http::Exchange& exchange) override;
  http::Response Refuse(const http::Error& error) const override;
  absl::Status Check(const http::Request& head) const;
  void ServeModels(HttpExchange& exchange, const std::string& name) const;
  void ServeHealth(HttpExchange& exchange) const;

  const std::string token_;
  CallContext context_;
  const int64_t started_;  // Unix seconds
  std::atomic<bool> stopping_{false};
  std::unique_ptr<http::Server> server_;  // goes first
};

}  // namespace tandem::rollout::openai

#endif  // TANDEM_SERVICES_ROLLOUT_OPENAI_OPENAI_SERVER_H_
