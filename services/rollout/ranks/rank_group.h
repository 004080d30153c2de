// RankGroup: the ranks of one replica. Rank 0 gives orders, which every rank then carries out at
// the same place in its sequence of collectives; and all ranks agree on what only all can do.
//
//   ASSIGN_OR_RETURN(auto ranks, RankGroup::Join(options));
//   model::Transformer model(spec, {}, &ranks->compute());
//   rank 0:  RETURN_IF_ERROR(ranks->Send(order));
//   others:  RETURN_IF_ERROR(ranks->Receive(order));
//   all:     ASSIGN_OR_RETURN(auto answers, ranks->Agree(can_i));
//
// Threads: one thread of the rank issues everything, the model's collectives too; Abort() and
// status() are for any. Errors are those of the process group, which is broken then.
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
  // Of each operation. Rank 0 gives an order at least every fifth of it.
  absl::Duration timeout = absl::Seconds(60);
  absl::Duration join_timeout = absl::Minutes(5);
  bool shared_memory = true;  // where all ranks are on one host
  // What the model computes on: its collectives go through Gloo or memory, or through NCCL.
  c10::Device device = c10::Device(c10::kCPU);
  const absl::Notification* cancel = nullptr;  // of joining
};

class RankGroup {
 public:
  // Returns when all ranks have joined.
  static absl::StatusOr<std::unique_ptr<RankGroup>> Join(const RankGroupOptions& options);

  int rank() const { return orders_->rank(); }
  int size() const { return orders_->size(); }
  absl::Duration timeout() const { return timeout_; }
  // For the model's tensors, on the device.
  comm::ProcessGroup& compute() { return compute_ == nullptr ? *orders_ : *compute_; }

  // To all other ranks. Rank 0 only; sets the order's number.
  absl::Status Send(v1::RankOrder& order);
  // INTERNAL where an order was lost.
  absl::Status Receive(v1::RankOrder& order);

  // Every rank says whether it can; all hear it of all, in rank order. Messages are cut to some
  // hundred bytes.
  absl::StatusOr<std::vector<absl::Status>> Agree(const absl::Status& own);

  // OK, or why the group is broken.
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
