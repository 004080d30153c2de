// Transport: how the bytes of an update travel from the trainer's leader to the rollout ranks.
//
// The trainer's side draws buckets from a BucketSource, the rollout's side hands them to a
// BucketSink; both know the plan, so nothing but bytes travels. Two buffers alternate on either
// side: while one is on the wire, the other is filled or emptied.
//
//   ASSIGN_OR_RETURN(auto transport, MakeTransport("broadcast"));
//   ASSIGN_OR_RETURN(auto digests, transport->Send(plan, group, source, times));     // rank 0
//   RETURN_IF_ERROR(transport->Receive(plan, group, sink, times));                   // the others
//
// Threads: one object serves one rank, on its collective (or data-plane) thread. Errors: those of
// the group, with bucket and first tensor added, and those of source or sink. After an error the
// group is to be aborted and made anew.
#ifndef TANDEM_COMMON_WEIGHTS_TRANSPORT_H_
#define TANDEM_COMMON_WEIGHTS_TRANSPORT_H_

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/comm/process_group.h"
#include "common/weights/bucket_plan.h"
#include "common/weights/phase_times.h"

namespace tandem::weights {

// Where the leader gets the bytes of a bucket from.
class BucketSource {
 public:
  virtual ~BucketSource() = default;
  // Begins to fill `buffer` (uint8, the bucket's size), which stays with the source until Finish().
  // At most two buckets are under way. Time spent packing is added to `times`.
  virtual absl::Status Start(int bucket, at::Tensor buffer, PhaseTimes& times) = 0;
  // Returns when the bucket's bytes are in its buffer. In the order of Start().
  virtual absl::Status Finish(int bucket) = 0;
};

// Where a receiver puts the bytes of a bucket.
class BucketSink {
 public:
  virtual ~BucketSink() = default;
  // Copies the bytes to where they belong. In plan order, each bucket once.
  virtual absl::Status Unpack(int bucket, const at::Tensor& buffer) = 0;
  // After Unpack() of the same bucket: digests the tensors that it completed, from where they lie.
  virtual absl::Status Digest(int bucket) = 0;
};

class Transport {
 public:
  virtual ~Transport() = default;
  virtual absl::string_view name() const = 0;
  // Answers the digests of what was sent, computed while it passed.
  virtual absl::StatusOr<std::vector<TensorDigest>> Send(const TransferPlan& plan,
                                                         comm::ProcessGroup& group,
                                                         BucketSource& source,
                                                         PhaseTimes& times) = 0;
  virtual absl::Status Receive(const TransferPlan& plan, comm::ProcessGroup& group,
                               BucketSink& sink, PhaseTimes& times) = 0;
};

// INVALID_ARGUMENT lists the names that there are.
absl::StatusOr<std::unique_ptr<Transport>> MakeTransport(absl::string_view name);

}  // namespace tandem::weights

#endif  // TANDEM_COMMON_WEIGHTS_TRANSPORT_H_
