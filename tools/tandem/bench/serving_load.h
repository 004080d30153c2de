// ServingLoad: clients that stream completions from rollouts, each one request at a time, and the
// latencies and losses that they observe.
//
//   ServingLoad load({"127.0.0.1:5000"}, work, vocab_size);
//   load.Start();
//   ...   // updates
//   const ServingResult result = load.Finish(absl::Now() + absl::Minutes(2));
#ifndef TANDEM_TOOLS_TANDEM_BENCH_SERVING_LOAD_H_
#define TANDEM_TOOLS_TANDEM_BENCH_SERVING_LOAD_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "tandem/rollout/v1/rollout_service.grpc.pb.h"
#include "tools/tandem/bench/bench.h"
#include "tools/tandem/driver/partial_group.h"

namespace tandem::bench {

struct ServingWork {
  int64_t clients = 500;
  int64_t prompt_tokens = 32;
  int64_t new_tokens = 32;                     // per request, whatever is sampled
  absl::Duration timeout = absl::Minutes(10);  // per request
};

struct ServingResult {
  std::vector<double> first_token_s;  // of each request, from its start
  std::vector<double> inter_token_s;  // between two messages of a stream
  int64_t num_requests = 0;           // requests that ended correctly
  int64_t num_tokens = 0;
  int64_t num_mixed = 0;  // requests sampled by more than one version
  int64_t oldest_version = -1, newest_version = -1;
  int64_t num_lost = 0;  // requests that failed
  absl::Status first_loss;
  double seconds = 0;
};

// Thread-safe.
class ServingLoad {
 public:
  // Assigns replicas to clients in turn. Draws ids from [1, vocab_size).
  ServingLoad(const std::vector<std::string>& replicas, const ServingWork& work,
              int64_t vocab_size);
  // Call after Finish().
  ~ServingLoad();

  // Starts every client's first request.
  void Start();

  // Lets each client finish its current request; cancels those not done by `deadline`, which count
  // as lost. Returns the latencies and losses.
  ServingResult Finish(absl::Time deadline);

 private:
  struct Client;

  void Next(Client& client);
  void OnTokens(Client& client, int64_t count);
  void OnDone(Client& client, const absl::Status& status);
  // Returns an error if the completion is not the requested one.
  absl::Status Check(const driver::Completion& completion) const;

  const ServingWork work_;
  const absl::Time start_ = absl::Now();
  std::vector<std::unique_ptr<rollout::v1::RolloutService::Stub>> stubs_;
  absl::Mutex mu_;
  TorchRandint randint_ ABSL_GUARDED_BY(mu_);
  std::vector<std::unique_ptr<Client>> clients_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  int64_t num_active_ ABSL_GUARDED_BY(mu_) = 0;
  ServingResult result_ ABSL_GUARDED_BY(mu_);
};

// The value below which `share` of the values lie; 0 for none. Sorts `values`.
double Percentile(std::vector<double>& values, double share);

}  // namespace tandem::bench

#endif  // TANDEM_TOOLS_TANDEM_BENCH_SERVING_LOAD_H_
