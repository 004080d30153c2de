// RankGroup: the ranks of one replica. Rank 0 sends orders, which every rank executes at the same
// point in its sequence of collectives; Agree() decides steps that need all ranks.
//
//   ASSIGN_OR_RETURN(auto ranks, RankGroup::Join(options));
//   model::Transformer model(spec, {}, &ranks->compute());
//   if (ranks->rank() == 0) {
//     RETURN_IF_ERROR(ranks->Send(order));
//   } else {
//     RETURN_IF_ERROR(ranks->Receive(order));
//   }
//   ASSIGN_OR_RETURN(auto answers, ranks->Agree(can_i));   // all ranks
//
// Threads: one thread of the rank issues all operations, including the model's collectives; Abort()
// and status() are for any thread. Errors are those of the process group, which is then broken.
#ifndef TANDEM_SERVICES_ROLLOUT_RANKS_RANK_GROUP_H_
#define TANDEM_SERVICES_ROLLOUT_RANKS_RANK_GROUP_H_

#include <c10/core/Device.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/comm/process_group.h"
#include "tandem/rollout/v1/rank_order.pb.h"

namespace tandem::rollout {

struct RankGroupOptions {
  int rank = 0;
  int size = 1;
  comm::Rendezvous rendezvous;
  // Timeout of each operation. Rank 0 sends an order at least every fifth of it.
  absl::Duration timeout = absl::Seconds(60);
  absl::Duration join_timeout = absl::Minutes(5);
  bool shared_memory = true;  // if all ranks are on one host
  // The model's device: its collectives use Gloo or shared memory on the CPU, NCCL on a GPU.
  c10::Device device = c10::Device(c10::kCPU);
  const absl::Notification* cancel = nullptr;  // cancels joining
};

class RankGroup {
 public:
  // Blocks until all ranks have joined.
  static absl::StatusOr<std::unique_ptr<RankGroup>> Join(const RankGroupOptions& options);

  int rank() const { return orders_->rank(); }
  int size() const { return orders_->size(); }
  absl::Duration timeout() const { return timeout_; }
  // The group for the model's tensors, on the device.
  comm::ProcessGroup& compute() { return compute_ == nullptr ? *orders_ : *compute_; }

  // Sends to all other ranks. Rank 0 only; sets the order's number.
  absl::Status Send(v1::RankOrder& order);
  // INTERNAL if an order was lost.
  absl::Status Receive(v1::RankOrder& order);

  // Exchanges whether each rank can proceed: returns the statuses of all, in rank order. Truncates
  // messages to a few hundred bytes.
  absl::StatusOr<std::vector<absl::Status>> Agree(const absl::Status& own);

  // OK, or the reason that the group is broken.
  absl::Status status() const;
  void Abort(absl::string_view reason);

 private:
  explicit RankGroup(absl::Duration timeout) : timeout_(timeout) {}

  const absl::Duration timeout_;
  std::unique_ptr<comm::ProcessGroup> orders_;   // for tensors on the CPU
  std::unique_ptr<comm::ProcessGroup> compute_;  // null: the same
  int64_t number_ = 0;                           // of the next order
};

}  // namespace tandem::rollout

#endif  // TANDEM_SERVICES_ROLLOUT_RANKS_RANK_GROUP_H_
