// OpenAiServer: the engine over HTTP, as OpenAI's clients and the evaluation tools that use them
// expect it.
//
//   POST /v1/completions, /v1/chat/completions   whole or streamed (completion_request.h)
//   GET  /v1/models, /v1/models/NAME             the one model, and the version that serves
//   GET  /health                                 200 while a version serves, 503 otherwise
//
// Plain HTTP/1.1, one request a connection. Errors are OpenAI's objects (api_error.h).
#ifndef TANDEM_SERVICES_ROLLOUT_OPENAI_OPENAI_SERVER_H_
#define TANDEM_SERVICES_ROLLOUT_OPENAI_OPENAI_SERVER_H_

#include <atomic>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "services/rollout/openai/completion_call.h"

struct mg_context;

namespace tandem::rollout::openai {

struct OpenAiOptions {
  std::string listen;      // HOST:PORT; port 0 takes a free one. No server where empty
  std::string token_file;  // see ReadToken()
  bool insecure = false;   // other machines need no token
  // Requests that are answered at once; more are refused with 429. Each costs a thread.
  int max_requests = 1024;
};

// Threads for each connection, which wait for tokens and for its client. What is passed in
// outlives the server.
class OpenAiServer {
 public:
  // Serves when it returns. INVALID_ARGUMENT for options that do not fit, UNAVAILABLE where the
  // address cannot be bound. `context.stopping` is the server's to set.
  static absl::StatusOr<std::unique_ptr<OpenAiServer>> Start(const OpenAiOptions& options,
                                                             CallContext context);
  // Cancels what still runs.
  ~OpenAiServer();
  OpenAiServer(const OpenAiServer&) = delete;
  OpenAiServer& operator=(const OpenAiServer&) = delete;

  // HOST:PORT with the real port.
  const std::string& address() const { return address_; }
  int port() const { return port_; }

  // Waits until the calls under way have ended, cancels the rest at `deadline`, and stops. The
  // engine refuses new ones by then.
  void Drain(absl::Time deadline);

 private:
  OpenAiServer(const OpenAiOptions& options, std::string token, CallContext context);
  int Answer(mg_connection* connection);
  void Route(HttpExchange& exchange);
  void ServeModels(HttpExchange& exchange, const std::string& name) const;
  void ServeHealth(HttpExchange& exchange) const;

  const OpenAiOptions options_;
  const std::string token_;
  CallContext context_;
  const int64_t started_;  // Unix seconds
  std::string address_;
  int port_ = 0;
  mg_context* context_handle_ = nullptr;
  std::atomic<bool> stopping_{false};
  absl::Mutex mu_;
  int num_active_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace tandem::rollout::openai

#endif  // TANDEM_SERVICES_ROLLOUT_OPENAI_OPENAI_SERVER_H_
