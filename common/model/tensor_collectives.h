// Collectives as differentiable operations, by which a layer that is split over ranks computes what
// the whole one would. Every rank of the group calls them in the same order, forward and backward;
// autograd visits the same graph in the same order on each, so graphs must not differ over ranks.
//
// A group of one rank, or none, leaves the tensor as it is. A failed collective throws
// CollectiveError, also out of a backward pass: the group is then broken. Threads: the rank's
// collective thread, or, on a GPU, autograd's while that one waits for it.
#ifndef TANDEM_COMMON_MODEL_TENSOR_COLLECTIVES_H_
#define TANDEM_COMMON_MODEL_TENSOR_COLLECTIVES_H_

#include <ATen/core/Tensor.h>

#include <stdexcept>
#include <utility>

#include "absl/status/status.h"
#include "common/comm/process_group.h"

namespace tandem::model {

// What a differentiable operation throws in place of the Status that it cannot return.
class CollectiveError : public std::runtime_error {
 public:
  explicit CollectiveError(absl::Status status)
      : std::runtime_error(status.ToString()), status_(std::move(status)) {}
  const absl::Status& status() const { return status_; }

 private:
  absl::Status status_;
};

inline bool IsSplit(const comm::ProcessGroup* group) {
  return group != nullptr && group->size() > 1;
}

// x itself; its gradient is summed over the ranks. Before a layer of which each rank has some
// outputs.
at::Tensor CopyToRanks(const at::Tensor& x, comm::ProcessGroup* group, const char* tag);

// The sum of x over the ranks; the gradient is passed on as it is. After a layer of which each rank
// has some inputs.
at::Tensor SumOverRanks(const at::Tensor& x, comm::ProcessGroup* group, const char* tag);

// x: [ranks, ...]. Slice r of the result is slice `rank` of rank r's x; the gradient goes back the
// same way.
at::Tensor ExchangeSlices(const at::Tensor& x, comm::ProcessGroup* group, const char* tag);

// In place, without autograd; waits for the result. `tensor` is contiguous.
void AllReduce(at::Tensor& tensor, comm::ReduceOp op, comm::ProcessGroup& group, const char* tag);

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_TENSOR_COLLECTIVES_H_
