// TeacherClient: scores token sequences with one teacher, a rollout that samples nothing.
//
//   TeacherClient teacher({.name = "teacher at host:5000", .address = [] { return "host:5000"; }});
//   ASSIGN_OR_RETURN(const auto responses, teacher.Score(requests));
#ifndef TANDEM_TOOLS_TANDEM_DRIVER_TEACHER_CLIENT_H_
#define TANDEM_TOOLS_TANDEM_DRIVER_TEACHER_CLIENT_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "tandem/rollout/v1/rollout_service.grpc.pb.h"

namespace tandem::driver {

// Thread-safe.
class TeacherClient {
 public:
  struct Options {
    std::string name;  // for errors
    // Where the teacher is at present; empty while it is down. May restart it. Called from any thread.
    std::function<std::string()> address;
    // Time for one sequence, from the first attempt on; restarts of the teacher count.
    absl::Duration timeout = absl::Seconds(60);
    // Once it returns true, Score() fails with CANCELLED. Null: never.
    std::function<bool()> interrupted;
  };

  struct Request {
    std::vector<uint32_t> token_ids;
    double temperature = 1.0;  // > 0
    int32_t num_top_logprobs = 0;
  };

  explicit TeacherClient(Options options) : options_(std::move(options)) {}

  // What the server says of itself. Waits up to `timeout` for it.
  absl::StatusOr<rollout::v1::GetServerInfoResponse> GetServerInfo(absl::Duration timeout);

  // Returns a response for each request, in order, complete and finite. Calls that fail because the
  // teacher is down, restarts or is full are repeated within options.timeout. DEADLINE_EXCEEDED
  // after it, with the last failure; INTERNAL for a response that breaks the contract. An error
  // cancels the other requests.
  absl::StatusOr<std::vector<rollout::v1::ScoreResponse>> Score(
      const std::vector<Request>& requests);

 private:
  using Stub = rollout::v1::RolloutService::Stub;
  class Batch;

  // Null while the teacher is down.
  std::shared_ptr<Stub> CurrentStub() ABSL_LOCKS_EXCLUDED(mu_);
  // The next call asks for the address again.
  void Forget(const std::shared_ptr<Stub>& stub) ABSL_LOCKS_EXCLUDED(mu_);

  const Options options_;
  absl::Mutex mu_;
  std::shared_ptr<Stub> stub_ ABSL_GUARDED_BY(mu_);
  int num_running_ ABSL_GUARDED_BY(mu_) = 0;  // calls, of all Score()
};

}  // namespace tandem::driver

#endif  // TANDEM_TOOLS_TANDEM_DRIVER_TEACHER_CLIENT_H_
