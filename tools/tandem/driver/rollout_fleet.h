// RolloutFleet: the driver's end of the rollout service, over all replicas. Groups go whole to the
// replica with the fewest tokens outstanding.
#ifndef TANDEM_TOOLS_TANDEM_DRIVER_ROLLOUT_FLEET_H_
#define TANDEM_TOOLS_TANDEM_DRIVER_ROLLOUT_FLEET_H_

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "tandem/rollout/v1/rollout_service.grpc.pb.h"
#include "tools/tandem/driver/completion.h"

namespace tandem::driver {

// Thread-safe.
class RolloutFleet {
 public:
  struct Replica {
    std::string id;
    std::string address;
  };

  RolloutFleet(std::vector<Replica> replicas, absl::Duration request_timeout);
  ~RolloutFleet();

  const std::vector<Replica>& replicas() const { return replicas_; }

  struct GenerateOptions {
    // How completions are sampled; its seed is mixed with the prompt's place in the batch.
    rollout::v1::SamplingParams sampling;
    // One completion more of each prompt, sampled so: the groups' baselines. Asked for together
    // with the rest, so that it costs no waiting.
    std::optional<rollout::v1::SamplingParams> baseline;
    bool return_text = true;
    // Told of newly sampled tokens, from gRPC's threads.
    std::function<void(int64_t)> on_tokens;
    // Told of each group that is whole, its index among the prompts first, from the calling thread.
    // The group's prompt is not there yet.
    std::function<void(size_t, const Group&)> on_group;
  };

  // Samples every prompt and returns the groups in the order of the prompts. A prompt whose replica
  // is gone is tried once on another one. The first other error is returned, after the rest has
  // been cancelled.
  absl::StatusOr<std::vector<Group>> Generate(std::vector<Prompt> prompts,
                                              const GenerateOptions& options);

  absl::StatusOr<rollout::v1::GetServerInfoResponse> GetServerInfo(size_t replica);

  // Ends every request on every replica, without waiting for long: used on the way out.
  void AbortAll();

 private:
  class Call;
  struct Link {
    std::unique_ptr<rollout::v1::RolloutService::Stub> stub;
    std::atomic<int64_t> outstanding_tokens{0};
  };

  // Index of the replica with the fewest outstanding tokens, other than `except` where there is a
  // choice.
  size_t PickReplica(int except) const;

  const std::vector<Replica> replicas_;
  const absl::Duration request_timeout_;
  std::vector<std::unique_ptr<Link>> links_;
};

}  // namespace tandem::driver

#endif  // TANDEM_TOOLS_TANDEM_DRIVER_ROLLOUT_FLEET_H_
