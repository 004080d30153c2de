// ReshardPlan: which bytes each rank sends to each other rank in one hop of a weight update: from
// the trainer's shards to a replica's boxes, or between replicas with different splits. Computed
// once per pair of layouts, from numbers alone, so every rank computes the same plan.
//
//   ASSIGN_OR_RETURN(ReshardPlan plan,
//                    MakeReshardPlan(TrainerHoldings(trainer, mesh), RolloutHoldings(rollout),
//                                    {.element_bytes = 2}));
//   for (const Message& message : plan.messages) {
//     if (message.from == rank || message.to == rank) Process(message);
//   }
//
// Invariants of a plan:
// - A receiver gets every element that it holds exactly once, and nothing else.
// - Elements that several senders hold are divided so that all senders send the same number of
//   bytes, as far as elements with only one holder allow; a share may end at any element.
// - A message's bytes are its pieces' runs, concatenated. It has at most bucket_bytes; the traffic
//   of a pair of ranks is cut into messages of similar size, at boundaries between groups of rows
//   of a tensor where possible.
// - All ranks share one order: a rank that processes its messages in this order, two in flight at
//   a time, never deadlocks. The order interleaves senders by the fraction of their bytes already
//   sent, so all stay busy from start to end; each sender cycles through its receivers, starting
//   with a different one.
#ifndef TANDEM_COMMON_WEIGHTS_RESHARD_PLAN_H_
#define TANDEM_COMMON_WEIGHTS_RESHARD_PLAN_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "common/weights/holdings.h"

namespace tandem::weights {

inline constexpr int kBucketsInFlight = 2;  // per rank

struct MessagePiece {
  Piece piece;
  Place from;  // in the sender's memory
  Place to;    // in the receiver's
};

struct Message {
  int32_t from = 0;
  int32_t to = 0;
  int64_t size_bytes = 0;
  std::vector<MessagePiece> pieces;  // by tensor
};

struct ReshardPlan {
  int64_t element_bytes = 0;
  int64_t bucket_bytes = 0;
  std::vector<Message> messages;        // every rank processes its own in this order
  std::vector<int64_t> sent_bytes;      // by sender
  std::vector<int64_t> received_bytes;  // by receiver

  int num_senders() const { return static_cast<int>(sent_bytes.size()); }
  int num_receivers() const { return static_cast<int>(received_bytes.size()); }
  int64_t total_bytes() const;
  int64_t num_pieces() const;
  int64_t largest_message_bytes() const;
};

struct ReshardOptions {
  int64_t element_bytes = 2;  // of every tensor, on the wire
  int64_t bucket_bytes = int64_t{64} << 20;
};

// INVALID_ARGUMENT: bucket_bytes holds no element, or the two sides have different models.
// FAILED_PRECONDITION, with the rank and the tensor: nobody holds what a receiver wants.
absl::StatusOr<ReshardPlan> MakeReshardPlan(const Holdings& from, const Holdings& to,
                                            const ReshardOptions& options);

}  // namespace tandem::weights

#endif  // TANDEM_COMMON_WEIGHTS_RESHARD_PLAN_H_
