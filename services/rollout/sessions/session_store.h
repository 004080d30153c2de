// SessionStore: the open sessions of a rollout.
//
//   ASSIGN_OR_RETURN(const std::string url, sessions.Open(request, limits, authority));
//   if (const std::shared_ptr<Session> session = sessions.Find(key)) Record(*session);
//   ASSIGN_OR_RETURN(v1::CloseSessionResponse response, sessions.Close(id));
#ifndef TANDEM_SERVICES_ROLLOUT_SESSIONS_SESSION_STORE_H_
#define TANDEM_SERVICES_ROLLOUT_SESSIONS_SESSION_STORE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "services/rollout/engine/limits.h"
#include "services/rollout/sessions/session.h"

namespace tandem::rollout {

// Thread-safe. A session that has expired is forgotten when the store is next used.
class SessionStore {
 public:
  struct Options {
    size_t max_sessions = 4096;
    int64_t max_bytes = int64_t{512} << 20;  // that all sessions hold
  };

  SessionStore() : SessionStore(Options()) {}
  explicit SessionStore(Options options) : options_(options) {}

  // HOST:PORT of the OpenAI endpoint, where sessions make their calls; empty, as at first, refuses
  // sessions.
  void SetEndpoint(std::string endpoint);

  // Opens a session, or finds it open with the same parameters. `authority` is what the caller calls
  // this server: its host stands in the URL if the endpoint listens on all addresses. Returns the
  // endpoint's base URL. Errors: those of OpenSession in rollout_service.proto.
  absl::StatusOr<std::string> Open(const v1::OpenSessionRequest& request,
                                   const RequestLimits& limits, absl::string_view authority);

  // The open session with this id; null if there is none.
  std::shared_ptr<Session> Find(absl::string_view id);

  // NOT_FOUND for an unknown session.
  absl::StatusOr<v1::CloseSessionResponse> Close(const std::string& id);

 private:
  void ForgetExpired() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Options options_;
  const std::shared_ptr<std::atomic<int64_t>> bytes_ = std::make_shared<std::atomic<int64_t>>(0);
  absl::Mutex mu_;
  std::string endpoint_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<std::string, std::shared_ptr<Session>> sessions_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tandem::rollout

#endif  // TANDEM_SERVICES_ROLLOUT_SESSIONS_SESSION_STORE_H_
