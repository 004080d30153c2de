// ScoreClient: has token sequences scored by one rollout that samples nothing: a teacher or a reward
// model.
//
//   ScoreClient client({.name = "the teacher at host:5000",
//                       .address = [] { return "host:5000"; },
//                       .timeout_key = "teacher.timeout_s"});
//   for (const auto& response : client.Score(requests, ScoreClient::OnError::kCancelOthers)) {
//     RETURN_IF_ERROR(response.status());
//   }
#ifndef TANDEM_TOOLS_TANDEM_DRIVER_SCORE_CLIENT_H_
#define TANDEM_TOOLS_TANDEM_DRIVER_SCORE_CLIENT_H_

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "tandem/rollout/v1/rollout_service.grpc.pb.h"

namespace tandem::driver {

// Thread-safe. All calls together have at most 64 sequences under way.
class ScoreClient {
 public:
  struct Options {
    std::string name;  // of the rollout, for errors
    // Where the rollout is at present; empty while it is down. May restart it. Called from any thread.
    std::function<std::string()> address;
    // Time for one sequence, from the first attempt on; restarts of the rollout count.
    absl::Duration timeout = absl::Seconds(60);
    std::string timeout_key;  // of the configuration, for errors
    // Once it returns true, calls end with CANCELLED. Null: never.
    std::function<bool()> interrupted;
  };

  explicit ScoreClient(Options options) : options_(std::move(options)) {}

  const std::string& name() const { return options_.name; }

  // Returns what the server says of itself. Waits up to `timeout` for it; CANCELLED soon after
  // `interrupted`, which may be null, is true.
  absl::StatusOr<rollout::v1::GetServerInfoResponse> GetServerInfo(
      absl::Duration timeout, const std::function<bool()>& interrupted);

  // After the first request that fails: kCancelOthers ends all that are unfinished with its error.
  enum class OnError { kGoOn, kCancelOthers };

  // Returns the response to each request, in order, or why there is none. Calls that fail because the
  // rollout is down, restarts or is full are repeated within options.timeout; DEADLINE_EXCEEDED after
  // it, with the last failure. Errors name the rollout.
  std::vector<absl::StatusOr<rollout::v1::ScoreResponse>> Score(
      std::vector<rollout::v1::ScoreRequest> requests, OnError on_error);

 private:
  using Stub = rollout::v1::RolloutService::Stub;
  class Batch;

  bool interrupted() const { return options_.interrupted && options_.interrupted(); }
  // Null while the rollout is down.
  std::shared_ptr<Stub> CurrentStub() ABSL_LOCKS_EXCLUDED(mu_);
  // The next call asks for the address again.
  void Forget(const std::shared_ptr<Stub>& stub) ABSL_LOCKS_EXCLUDED(mu_);

  const Options options_;
  absl::Mutex mu_;
  std::shared_ptr<Stub> stub_ ABSL_GUARDED_BY(mu_);
  int num_running_ ABSL_GUARDED_BY(mu_) = 0;  // calls, of all Score()
};

}  // namespace tandem::driver

#endif  // TANDEM_TOOLS_TANDEM_DRIVER_SCORE_CLIENT_H_
