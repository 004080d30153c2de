// ReshardReceiver: takes a rank's buckets from those who send them, in the plan's order, and passes
// them on to the next of a chain as they arrive.
//
// Of a bucket each span is a message, received straight into its place where the sink has one. A
// delta's bucket comes as two messages: its coded size, eight bytes, and the delta
// (delta_format.md). It is passed on as it came.
//
// Transfer memory is at most that of the messages under way (MessagesUnderWay), and none where all
// spans have places; with deltas two buckets, and a third in which they are applied.
// Threads: one object serves one rank, on its data-plane thread. Errors: those of the groups and of
// the sink, with the bucket; DATA_LOSS for a delta that is none. After an error the groups are to
// be aborted.
#ifndef TANDEM_COMMON_WEIGHTS_RESHARD_RECEIVER_H_
#define TANDEM_COMMON_WEIGHTS_RESHARD_RECEIVER_H_

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "common/comm/process_group.h"
#include "common/weights/bucket_ends.h"

namespace tandem::weights {

// The rank's neighbours in an update.
struct ReceiveLinks {
  comm::ProcessGroup* from = nullptr;     // the buckets' sources are its ranks
  std::optional<int> fed_by;              // its rank that passes on all of them, if one does
  comm::ProcessGroup* forward = nullptr;  // null: nobody is fed
  int forward_to = 0;                     // its rank that is
};

class ReshardReceiver {
 public:
  absl::Status Receive(const TransferPlan& plan, const ReceiveLinks& links, bool delta,
                       BucketSink& sink, PhaseTimes& times);

 private:
  using Works = std::vector<std::unique_ptr<comm::Work>>;

  absl::Status ReceiveWhole(const TransferPlan& plan, const ReceiveLinks& links, BucketSink& sink,
                            PhaseTimes& times);
  absl::Status ReceiveDeltas(const TransferPlan& plan, const ReceiveLinks& links, BucketSink& sink,
                             PhaseTimes& times);
  // INVALID_ARGUMENT where it is no rank of the group.
  static absl::StatusOr<int> SourceOf(const TransferPlan& plan, const ReceiveLinks& links,
                                      int bucket);
  // A buffer of the messages under way, of `bytes` at least. RESOURCE_EXHAUSTED.
  absl::StatusOr<at::Tensor> BufferOf(int slot, int64_t bytes);

  // Kept from one update to the next, except after an error: then a group may still hold them.
  std::vector<at::Tensor> buffers_;  // uint8
};

}  // namespace tandem::weights

#endif  // TANDEM_COMMON_WEIGHTS_RESHARD_RECEIVER_H_
