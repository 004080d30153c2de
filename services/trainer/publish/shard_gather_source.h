// ShardGatherSource: the trainer's side of an update's data. Every rank holds a slice of every
// unit; bucket by bucket they cast what is theirs to the wire type and send it to the leader,
// straight to its place in the bucket's buffer. The leader never holds more than the two buckets
// that are under way.
//
// The leader decides which buckets are gathered, and says so to the other ranks in a message of a
// few words for each, one bucket ahead, so that they pack while it gathers. What it has asked for
// it takes, needed or not; so however an update ends, all ranks have issued the same operations,
// and the trainer's group is as good as before. At the end every rank tells the digests of what it
// gave, so that what was changed between two ranks is known.
//
//   leader:  source.Start(0, buffer) ... source.Finish(n) ... source.End();      // by a Transport
//   others:  RETURN_IF_ERROR(source.Follow());                                   // until End()
//
// Threads: the rank's collective thread. Errors are those of the trainer's group, which is then
// broken.
#ifndef TANDEM_SERVICES_TRAINER_PUBLISH_SHARD_GATHER_SOURCE_H_
#define TANDEM_SERVICES_TRAINER_PUBLISH_SHARD_GATHER_SOURCE_H_

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "common/comm/process_group.h"
#include "common/weights/bucket_ends.h"
#include "common/weights/bucket_plan.h"
#include "common/weights/device_ops.h"
#include "services/trainer/fsdp/shard_digests.h"
#include "services/trainer/fsdp/shard_layout.h"
#include "services/trainer/publish/given_digests.h"
#include "services/trainer/publish/group_deadline.h"
#include "services/trainer/publish/group_messages.h"

namespace tandem::trainer {

// What one rank holds of the model: of each unit of the parameter table, in its order, the slice
// [rank * padded_numel / ranks, (rank + 1) * padded_numel / ranks) of the flat buffer. Where ranks
// hold parts of the tensors (tensor parallelism), `layout` says which.
struct ShardedWeights {
  struct Unit {
    at::Tensor master;         // [padded_numel / ranks], float32, on the host or on ops' device
    int64_t numel = 0;         // of the unit
    int64_t padded_numel = 0;  // a multiple of ranks
    // The master in the type that is computed with, or undefined: where that is the wire's, what
    // travels lies there.
    at::Tensor computed;
    // Of `computed`, where they are kept; null: nobody does.
    std::shared_ptr<const ShardDigests> digests;
  };
  int ranks = 1;
  int rank = 0;
  std::vector<Unit> units;
  std::shared_ptr<const ShardLayout> layout;  // null: the units are whole
  // Of the device that the groups of an update move tensors on; buckets are its memory.
  weights::DeviceOps* ops = &weights::CpuOps();
};

class ShardGatherSource : public weights::BucketSource {
 public:
  // `plan` and the groups outlive the source; `group` may be null where there is one rank, and may
  // have more ranks after the shards'. `control`: the same ranks, for tensors on the CPU; null
  // where `group` is that itself. The masters are read in place, so they must not change while
  // an update runs. INVALID_ARGUMENT where the units are not the plan's tensors, or the plan mixes
  // element types.
  static absl::StatusOr<std::unique_ptr<ShardGatherSource>> Create(
      const weights::TransferPlan& plan, ShardedWeights shards, comm::ProcessGroup* group,
      comm::ProcessGroup* control = nullptr);

  weights::DeviceOps& ops() const { return *shards_.ops; }

  // The leader (rank 0).
  absl::Status Start(int bucket, at::Tensor buffer, weights::PhaseTimes& times) override;
  absl::Status Finish(int bucket) override;
  // After the last Finish(): whether what was gathered, which has `digests`, is what the ranks
  // gave. DATA_LOSS names the tensor that is not, or the rank whose answer arrived damaged.
  absl::Status CheckGathered(const std::vector<weights::TensorDigest>& digests);
  // Completes what has been asked for, after a failure of the transport. A Start() after it begins
  // anew.
  absl::Status Drain();
  // Before the first Start() of an update: until End(), waits end with `deadline` and kReportGrace;
  // `otherwise` is the timeout that the group has then.
  void Begin(absl::Time deadline, absl::Duration otherwise);
  // Drains, and lets the other ranks' Follow() return. A Start() after it begins with the next
  // Follow().
  absl::Status End();

  // The other ranks: takes part until the leader ends.
  absl::Status Follow();

 private:
  // Elements that one rank holds of a bucket without a gap.
  struct Run {
    int unit;
    int64_t shard_offset;
    int64_t bucket_offset;
    int64_t count;
  };
  // What a rank sends of a bucket in one message, where its elements are scattered.
  struct Landing {
    at::Tensor packed;  // bytes
    at::Tensor buffer;  // the bucket's
    std::vector<Run> runs;
  };
  struct Slot {
    std::vector<std::unique_ptr<comm::Work>> works;
    std::vector<at::Tensor> held;
    std::vector<Landing> landings;
  };

  ShardGatherSource(const weights::TransferPlan& plan, ShardedWeights shards,
                    comm::ProcessGroup* group, comm::ProcessGroup* control)
      : plan_(plan),
        shards_(std::move(shards)),
        group_(group),
        control_(control == nullptr ? group : control),
        given_(plan) {
    for (int peer = 0; peer < shards_.ranks; ++peer) links_.emplace_back(control_, peer);
  }

  absl::Status CheckWholeUnits();
  absl::Status CheckLayout();
  std::vector<Run> RunsOf(int rank, int bucket) const;
  std::vector<Run> RunsOfParts(int rank, int64_t begin, int64_t end) const;
  absl::Status Scatter(const Landing& landing) const;
  absl::Status Pack(int bucket, const Run& run, const at::Tensor& destination);
  void ApplyLimit();
  at::Tensor View(const at::Tensor& bytes, int64_t first, int64_t count) const;
  absl::Status WaitFor(Slot& slot, int bucket);
  absl::Status WaitForAsking(int bucket);
  absl::Status WaitForAsking();  // for all of it
  absl::Status Ask(int bucket);
  absl::Status PostReceives(int bucket, const at::Tensor& buffer, Slot& slot);
  absl::Status SendWord(int rank, int64_t word, Slot& slot);
  // What the leader tells next.
  absl::StatusOr<int64_t> Hear();
  absl::Status SendBucket(int bucket, at::Tensor staging, Slot& slot);

  const weights::TransferPlan& plan_;
  const ShardedWeights shards_;
  comm::ProcessGroup* const group_;
  comm::ProcessGroup* const control_;
  at::ScalarType wire_type_ = at::kFloat;
  int64_t element_size_ = 4;
  // Elements of the canonical stream before each unit; with a layout, before each tensor.
  std::vector<int64_t> unit_start_;
  std::vector<int64_t> bucket_start_;  // elements of the canonical stream before each bucket
  std::array<Slot, 2> slots_;          // by the bucket's number
  std::array<Slot, 2> asking_;         // the messages that ask, likewise
  std::optional<GroupDeadline> limit_, control_limit_;
  GivenDigests given_;
  std::vector<MessageLink> links_;                                   // by rank, for digests
  std::vector<int64_t> told_ = std::vector<int64_t>(shards_.ranks);  // messages, by rank
  int64_t heard_ = 0;
  int next_start_ = 0;  // bucket
  int next_ask_ = 0;    // bucket; at most next_start_ + 1 after a Start()
};

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_PUBLISH_SHARD_GATHER_SOURCE_H_
