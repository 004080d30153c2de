// EnvironmentClient: the driver's connection to an EnvironmentService, shared by all episodes: one
// stream, which it opens again when it breaks.
//
//   auto client = std::make_shared<EnvironmentClient>(EnvironmentClient::Options{.endpoint = endpoint});
//   client->Send(request, absl::Now() + absl::Seconds(60), [](auto answer) { Use(answer); });
//   client->Shutdown();
#ifndef TANDEM_TOOLS_TANDEM_ENVIRONMENT_ENVIRONMENT_CLIENT_H_
#define TANDEM_TOOLS_TANDEM_ENVIRONMENT_ENVIRONMENT_CLIENT_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "tandem/environment/v1/environment_service.grpc.pb.h"

namespace tandem::environment {

// Thread-safe. Calls `done` without holding a lock, from gRPC's threads or a thread of its own.
class EnvironmentClient {
 public:
  struct Options {
    std::string endpoint;
    absl::Duration ping_interval = absl::Seconds(10);
    // A service that sends nothing for so long counts as lost.
    absl::Duration silence_limit = absl::Seconds(30);
  };
  using Done = std::function<void(absl::StatusOr<v1::PlayResponse>)>;

  explicit EnvironmentClient(Options options);
  ~EnvironmentClient() { Shutdown(); }

  // Sends an action and calls `done` once with its answer; sets the action's id. Waits for a service
  // that is not reachable. Errors: UNAVAILABLE if the stream breaks, DEADLINE_EXCEEDED,
  // UNIMPLEMENTED, UNAUTHENTICATED, PERMISSION_DENIED, CANCELLED after Shutdown(). `done` may be null
  // for an action without an answer, which is lost if no stream is open.
  void Send(v1::PlayRequest request, absl::Time deadline, Done done);

  // Grows with each stream: a service knows the episodes of its present stream only.
  int64_t generation() const;
  // Streams that broke since the last call.
  int64_t TakeBreaks();

  // Finds out whether the service is there, by a ping. Waits up to `timeout`; CANCELLED soon after
  // `interrupted`, which may be null, is true.
  absl::Status Check(absl::Duration timeout, const std::function<bool()>& interrupted);

  // Ends the stream and all that waits. Harmless to repeat.
  void Shutdown();

 private:
  class Stream;
  struct Pending {
    Done done;
    absl::Time deadline;
    Stream* stream = nullptr;
  };

  Stream* OpenStream() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void OnAnswer(v1::PlayResponse response);
  void OnStreamDone(Stream* stream, absl::Status status);
  void ForgetStream();
  // Expires what is overdue, pings, and cancels a silent stream.
  void RunPeriodicTasks();

  const Options options_;
  const std::unique_ptr<v1::EnvironmentService::Stub> stub_;
  mutable absl::Mutex mu_;
  Stream* stream_ ABSL_GUARDED_BY(mu_) = nullptr;            // the open one; owns itself
  int64_t num_streams_ ABSL_GUARDED_BY(mu_) = 0;             // that have not been deleted
  std::map<int64_t, Pending> pending_ ABSL_GUARDED_BY(mu_);  // by action id
  int64_t next_action_ ABSL_GUARDED_BY(mu_) = 1;
  int64_t generation_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t num_breaks_ ABSL_GUARDED_BY(mu_) = 0;
  absl::Time last_heard_ ABSL_GUARDED_BY(mu_);
  absl::Time last_ping_ ABSL_GUARDED_BY(mu_);
  bool is_shut_down_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace tandem::environment

#endif  // TANDEM_TOOLS_TANDEM_ENVIRONMENT_ENVIRONMENT_CLIENT_H_
