// ShardGatherSource: the trainer's side of an update's data. Every rank holds a slice of every
// unit; bucket by bucket, the ranks cast their elements to the wire type and send them to the
// leader, straight into their place in the bucket's buffer. The leader never holds more than the
// two buckets in flight.
//
// The leader decides which buckets are gathered and requests each from the other ranks in a short
// message, one bucket ahead, so that they pack while it gathers. It receives every bucket it has
// requested, even if it no longer needs it. So however an update ends, all ranks have issued the
// same operations, and the trainer's group stays usable. At the end every rank sends the digests of
// what it gave, which reveals damage between two ranks.
//
// If the receivers keep the frozen tensors, the buckets leave these out. Every rank then only
// digests its part of them, so that the leader knows what the trainer has now.
//
//   RETURN_IF_ERROR(source.Choose(/*keeps_frozen=*/false));
//   RETURN_IF_ERROR(source.Start(0, buffer, times));   // the leader, called by a Transport
//   RETURN_IF_ERROR(source.Finish(0));
//   RETURN_IF_ERROR(source.End());
//   RETURN_IF_ERROR(source.Follow());                  // the others, until End()
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
#include "services/trainer/publish/contribution_digests.h"
#include "services/trainer/publish/group_deadline.h"
#include "services/trainer/publish/group_messages.h"
#include "services/trainer/publish/rank_shards.h"

namespace tandem::trainer {

class ShardGatherSource : public weights::BucketSource {
 public:
  // `plan` and the groups outlive the source. `group` may be null with one rank, and may have more
  // ranks after the shards'. `control`: the same ranks, for tensors on the CPU; null if `group`
  // serves for that. Reads the masters in place, so they must not change while an update runs.
  // INVALID_ARGUMENT if the units do not match the plan's tensors, or the plan mixes element types.
  static absl::StatusOr<std::unique_ptr<ShardGatherSource>> Create(
      const weights::TransferPlan& plan, RankShards shards, comm::ProcessGroup* group,
      comm::ProcessGroup* control = nullptr);

  weights::DeviceOps& ops() const { return *shards_.ops; }
  // Whether some tensors are frozen and others are not.
  bool has_frozen() const { return trainable_.has_value(); }
  // The plan of all tensors, or of the trainable ones; the latter requires has_frozen().
  const weights::TransferPlan& PlanOf(bool keeps_frozen) const {
    return keeps_frozen ? *trainable_ : whole_;
  }

  // For the leader (rank 0). Chooses the plan of the following buckets; drains those of another.
  absl::Status Choose(bool keeps_frozen);
  absl::Status Start(int bucket, at::Tensor buffer, weights::PhaseTimes& times) override;
  absl::Status Finish(int bucket) override;
  // Call after the last Finish(): checks that the gathered bytes, with `digests`, are those that
  // the ranks gave, and fills in the digests of the frozen tensors that were not gathered.
  // DATA_LOSS names the damaged tensor, or the rank whose digests arrived damaged.
  absl::Status CheckGathered(std::vector<weights::TensorDigest>& digests);
  // After a failure of the transport: completes all requested transfers. A later Start() restarts
  // the gather.
  absl::Status Drain();
  // Call before the first Start() of an update: until End(), waits end at `deadline` plus
  // kReportGrace; End() restores the timeout `otherwise`.
  void Begin(absl::Time deadline, absl::Duration otherwise);
  // Drains, and lets the other ranks' Follow() return. A later Start() pairs with their next
  // Follow().
  absl::Status End();

  // For the other ranks: takes part until the leader ends.
  absl::Status Follow();

 private:
  // A contiguous range of elements of a bucket that one rank holds.
  struct Run {
    int unit;
    int64_t shard_offset;
    int64_t bucket_offset;
    int64_t count;
  };
  // A rank's elements of a bucket in one message, if they are scattered.
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

  ShardGatherSource(const weights::TransferPlan& plan, RankShards shards, comm::ProcessGroup* group,
                    comm::ProcessGroup* control)
      : whole_(plan),
        plan_(&plan),
        shards_(std::move(shards)),
        group_(group),
        control_(control == nullptr ? group : control),
        contributions_(plan.manifest.tensors_size()) {
    for (int peer = 0; peer < shards_.ranks; ++peer) links_.emplace_back(control_, peer);
  }

  absl::Status CheckWholeUnits();
  absl::Status CheckLayout();
  absl::Status PlanTrainable();
  std::vector<Run> RunsOf(int rank, int bucket) const;
  // The runs of elements [begin, end) of the canonical stream, which lie from `bucket_offset` on.
  void AddRuns(int rank, int64_t begin, int64_t end, int64_t bucket_offset,
               std::vector<Run>& runs) const;
  void AddRunsOfParts(int rank, int64_t begin, int64_t end, int64_t bucket_offset,
                      std::vector<Run>& runs) const;
  absl::Status Scatter(const Landing& landing) const;
  absl::Status Pack(int bucket, const Run& run, const at::Tensor& destination);
  void ApplyLimit();
  at::Tensor View(const at::Tensor& bytes, int64_t first, int64_t count) const;
  absl::Status WaitFor(Slot& slot, int bucket);
  absl::Status WaitForRequests(int bucket);
  absl::Status WaitForRequests();  // for all of it
  absl::Status RequestBucket(int bucket);
  absl::Status PostReceives(int bucket, const at::Tensor& buffer, Slot& slot);
  absl::Status SendWord(int rank, int64_t word, Slot& slot);
  // Receives the leader's next word.
  absl::StatusOr<int64_t> ReceiveWord();
  // The message that requests the plan's first bucket; those of the others follow it.
  int64_t FirstWord() const {
    return plan_ == &whole_ ? 0 : static_cast<int64_t>(whole_.buckets.size());
  }
  // Reads a request: chooses the plan and returns the bucket.
  absl::StatusOr<int> BucketOf(int64_t word);
  // Digests this rank's part of the frozen tensors, if the plan leaves them out.
  absl::Status DigestKept();
  absl::Status SendBucket(int bucket, at::Tensor staging, Slot& slot);

  const weights::TransferPlan& whole_;
  std::optional<weights::TransferPlan> trainable_;  // without the frozen tensors, if there are any
  const weights::TransferPlan* plan_;               // the chosen one of these
  const RankShards shards_;
  comm::ProcessGroup* const group_;
  comm::ProcessGroup* const control_;
  at::ScalarType wire_type_ = at::kFloat;
  int64_t element_size_ = 4;
  // Elements of all tensors' canonical stream before each tensor, and before each unit.
  std::vector<int64_t> tensor_start_, unit_start_;
  std::array<Slot, 2> slots_;     // by the bucket's number
  std::array<Slot, 2> requests_;  // the requests, likewise
  std::optional<GroupDeadline> limit_, control_limit_;
  ContributionDigests contributions_;
  std::vector<MessageLink> links_;                                         // by rank, for digests
  std::vector<int64_t> sent_words_ = std::vector<int64_t>(shards_.ranks);  // messages, by rank
  int64_t received_words_ = 0;
  int next_start_ = 0;    // bucket
  int next_request_ = 0;  // bucket; at most next_start_ + 1 after a Start()
};

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_PUBLISH_SHARD_GATHER_SOURCE_H_
