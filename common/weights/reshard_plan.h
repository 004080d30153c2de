// ReshardPlan: which bytes go from whom to whom in one hop of a weight update, from the trainer's
// shards to a replica's boxes, or from one replica to a replica split otherwise. Computed once for
// a pair of layouts, from numbers alone, so that every rank may compute it and find the same.
//
//   ASSIGN_OR_RETURN(ReshardPlan plan, MakeReshardPlan(TrainerHoldings(trainer, mesh),
//                                                      RolloutHoldings(rollout), {.element_bytes =
//                                                      2}));
//   for (const Message& message : plan.messages) ...    // each rank does those it is in, in order
//
// What holds of a plan:
// - A receiver gets every element that it holds exactly once, and nothing else.
// - Elements that several senders hold are shared out so that all send the same number of bytes, as
//   far as what only one of them holds allows; a share is cut at any element.
// - A message's bytes are its pieces' runs one after another. It has at most bucket_bytes; what one
//   pair of ranks exchanges is cut into messages of much the same size, between groups of rows of
//   a tensor where there are such ends.
// - The order is one for all ranks: a rank that takes its messages in it, two under way at a time,
//   never waits for a rank that waits for it. It interleaves the senders by the share of their
//   bytes that they have sent, so that all are busy from beginning to end, and each sender goes
//   round its receivers, beginning with another one.
#ifndef TANDEM_COMMON_WEIGHTS_RESHARD_PLAN_H_
#define TANDEM_COMMON_WEIGHTS_RESHARD_PLAN_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "common/weights/holdings.h"

namespace tandem::weights {

inline constexpr int kBucketsInFlight = 2;  // of a rank

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
  std::vector<Message> messages;        // in the order in which every rank takes its own
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

// INVALID_ARGUMENT: a bucket that holds no element, or sides of different models.
// FAILED_PRECONDITION, with the rank and the tensor: what a receiver wants is held by nobody.
absl::StatusOr<ReshardPlan> MakeReshardPlan(const Holdings& from, const Holdings& to,
                                            const ReshardOptions& options);

}  // namespace tandem::weights

#endif  // TANDEM_COMMON_WEIGHTS_RESHARD_PLAN_H_
