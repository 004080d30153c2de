// Differentiable collectives, with which a layer that is split over ranks computes the same as the
// whole layer. Every rank of the group calls them in the same order, forward and backward; autograd
// visits the same graph in the same order on each, so graphs must not differ between ranks.
//
// With a group of one rank, or null, the tensor is returned unchanged. A failed collective throws
// CollectiveError, also from a backward pass: the group is then broken. Threads: the rank's
// collective thread, or, on a GPU, autograd's thread while the collective thread waits for it.
#ifndef TANDEM_COMMON_MODEL_TENSOR_COLLECTIVES_H_
#define TANDEM_COMMON_MODEL_TENSOR_COLLECTIVES_H_

#include <ATen/core/Tensor.h>

#include <memory>
#include <stdexcept>
#include <utility>

#include "absl/status/status.h"
#include "common/comm/process_group.h"

namespace tandem::model {

// Thrown by differentiable operations, which cannot return a Status.
class CollectiveError : public std::runtime_error {
 public:
  explicit CollectiveError(absl::Status status)
      : std::runtime_error(status.ToString()), status_(std::move(status)) {}
  const absl::Status& status() const { return status_; }

 private:
  absl::Status status_;
};

// Return what was issued, and wait for it; both throw CollectiveError.
std::unique_ptr<comm::Work> Issued(comm::ProcessGroup::WorkOr work);
void Await(comm::Work& work);

inline bool IsSplit(const comm::ProcessGroup* group) {
  return group != nullptr && group->size() > 1;
}

// Returns x; sums its gradient over the ranks. Use before a layer whose outputs are split over
// ranks.
at::Tensor CopyToRanks(const at::Tensor& x, comm::ProcessGroup* group, const char* tag);

// Returns the sum of x over the ranks; passes the gradient on unchanged. Use after a layer whose
// inputs are split over ranks.
at::Tensor SumOverRanks(const at::Tensor& x, comm::ProcessGroup* group, const char* tag);

// All-to-all. x: [ranks, ...]. Slice r of the result is slice `rank` of rank r's x; the gradient
// takes the reverse path.
at::Tensor ExchangeSlices(const at::Tensor& x, comm::ProcessGroup* group, const char* tag);

// Reduces in place, without autograd; waits for the result. `tensor` is contiguous.
void AllReduce(at::Tensor& tensor, comm::ReduceOp op, comm::ProcessGroup& group, const char* tag);

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_TENSOR_COLLECTIVES_H_
