// ReshardReceiver: takes a rank's buckets from those who send them, in the plan's order, and passes
// them on to the next of a chain as they arrive.
//
// Of a bucket each span is a message, received straight into its place where the sink has one. A
// delta's bucket comes as two messages: its coded size, eight bytes, and the delta
// (delta_format.md). It is passed on as it came.
//
// Transfer memory is at most two buckets, and with deltas a third in which they are applied.
// Threads: one object serves one rank, on its data-plane thread. Errors: those of the groups and of
// the sink, with the bucket; DATA_LOSS for a delta that is none. After an error the groups are to
// be aborted.
#ifndef TANDEM_COMMON_WEIGHTS_RESHARD_RECEIVER_H_
#define TANDEM_COMMON_WEIGHTS_RESHARD_RECEIVER_H_

#include <ATen/core/Tensor.h>

#include <array>
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
  absl::Status MakeBuffers(int64_t bytes, int64_t base_bytes);

  // Kept from one update to the next, except after an error: then a group may still hold them.
  std::array<at::Tensor, 2> buffers_;  // uint8
  at::Tensor base_;                    // uint8: where deltas are applied
};

}  // namespace tandem::weights

#endif  // TANDEM_COMMON_WEIGHTS_RESHARD_RECEIVER_H_
