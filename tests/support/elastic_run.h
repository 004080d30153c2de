// A run of mode async whose rollouts are processes of the test: it starts, kills and stops them
// while the run goes on, and checks afterwards, by scoring, which version sampled every token.
#ifndef TANDEM_TESTS_SUPPORT_ELASTIC_RUN_H_
#define TANDEM_TESTS_SUPPORT_ELASTIC_RUN_H_

#include <cstdint>
#include <future>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/rpc/child_process.h"
#include "common/rpc/server.h"
#include "nlohmann/json.hpp"
#include "tandem/reward/v1/reward_service.grpc.pb.h"
#include "tests/support/program.h"
#include "tests/support/temp_folder.h"

namespace tandem::testing {

// Judges completions by their tokens, and can be made to wait, which holds the run where it is.
class GatedReward : public reward::v1::RewardService::Service {
 public:
  // Each call takes `pace`, which makes a step take no less.
  // Off loopback in plaintext, which only a network of the test's own reaches.
  explicit GatedReward(absl::Duration pace = absl::ZeroDuration(),
                       const std::string& listen = "127.0.0.1:0");
  ~GatedReward() override;
  const std::string& address() const { return server_->address(); }
  void Close();
  void Open();
  // Calls that wait for it to be open.
  int num_waiting() const {
    absl::MutexLock lock(&mu_);
    return num_waiting_;
  }

  grpc::Status ComputeRewards(grpc::ServerContext* context,
                              const reward::v1::ComputeRewardsRequest* request,
                              reward::v1::ComputeRewardsResponse* response) override;

 private:
  const absl::Duration pace_;
  mutable absl::Mutex mu_;
  int num_waiting_ ABSL_GUARDED_BY(mu_) = 0;
  bool is_open_ ABSL_GUARDED_BY(mu_) = true;
  std::unique_ptr<rpc::Server> server_;
};

class ElasticRun {
 public:
  ElasticRun(int64_t total_steps, int64_t max_staleness, const std::string& in_flight);

  // A rollout process that is up, and in the file of endpoints. Its number.
  int AddRollout();
  // Begins the run with the rollouts that there are.
  void Start();

  // The last step of the run that is done; -1 before the first line.
  int64_t step() const;
  bool is_over();
  // Waits until `step` is done or the run is over. False where it takes too long.
  bool AwaitStep(int64_t step);

  // SIGKILL; it stays in the file.
  void KillRollout(int number);
  // SIGTERM; it drains.
  void StopRollout(int number);
  // Takes it out of the file; it goes on living until the end of the test.
  void UnlistRollout(int number);
  // The version that is live there; -1: none, or nobody answers.
  int64_t LiveVersion(int number) const;

  GatedReward& reward() { return reward_; }
  ProgramResult Wait();
  std::string run_dir() const { return folder_ / "run"; }

  // Every sampled token of every trained sample: its log-prob is, within 1e-4, what the version of
  // its span gives after the tokens before it. Fails the test otherwise.
  struct SpanCheck {
    int64_t tokens = 0;
    int64_t mixed_samples = 0;  // that more than one version sampled
    // What the check is worth: tokens that were held against the version after theirs as well, and
    // those of them that it contradicts.
    int64_t held_against_next = 0;
    int64_t contradicted = 0;
  };
  SpanCheck ExpectTrueSpans(int64_t total_steps);

 private:
  struct Rollout {
    std::unique_ptr<rpc::ChildProcess> process;
    std::string address;
    bool is_listed = true;
  };
  std::unique_ptr<rpc::ChildProcess> Spawn(const std::string& program, const std::string& name,
                                           std::string& address);
  void WriteEndpoints();

  const TempFolder folder_;
  GatedReward reward_;
  std::string config_;
  std::unique_ptr<rpc::ChildProcess> trainer_;
  std::string trainer_address_;
  std::vector<Rollout> rollouts_;
  std::future<ProgramResult> run_;
};

}  // namespace tandem::testing

#endif  // TANDEM_TESTS_SUPPORT_ELASTIC_RUN_H_
