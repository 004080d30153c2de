#include "common/weights/relay_plan.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "common/weights/holdings.h"

namespace tandem::weights {
namespace {

// A part of one tensor that a rank forwards, and its receiver.
struct Share {
  int32_t to = 0;
  Piece piece;
};

// By sender and tensor.
using Shares = std::vector<std::vector<std::vector<Share>>>;

absl::StatusOr<Shares> SharesOf(const ModelLayout& from, const ModelLayout& to,
                                int64_t element_bytes) {
  ReshardOptions whole;
  whole.element_bytes = element_bytes;
  whole.bucket_bytes = std::max<int64_t>(1, from.elements()) * element_bytes;
  ASSIGN_OR_RETURN(const ReshardPlan plan,
                   MakeReshardPlan(RolloutHoldings(from), RolloutHoldings(to), whole));
  Shares shares(from.tp(), std::vector<std::vector<Share>>(from.tensors.size()));
  for (const Message& message : plan.messages) {
    for (const MessagePiece& part : message.pieces) {
      shares[message.from][part.piece.tensor].push_back({message.to, part.piece});
    }
  }
  return shares;
}

// By tensor; a rank has at most one box of each.
std::vector<const TensorBox*> BoxesOf(const ModelLayout& layout, int rank) {
  std::vector<const TensorBox*> boxes(layout.tensors.size(), nullptr);
  for (const TensorBox& box : layout.parts[rank].boxes) boxes[box.tensor] = &box;
  return boxes;
}

// Returns the place of a piece within a box in the box's memory.
Place PlaceIn(const TensorBox& box, const LogicalTensor& tensor, const Piece& piece) {
  const int64_t row = piece.first / tensor.columns - box.first_row;
  const int64_t column = piece.first % tensor.columns - box.first_column;
  return {box.tensor, row * box.columns + column, piece.repeat > 1 ? box.columns : piece.length};
}

}  // namespace

absl::StatusOr<RelayPlan> MakeRelayPlan(const ReshardPlan& feed, const ModelLayout& from,
                                        const ModelLayout& to, const std::vector<bool>& brings) {
  if (feed.num_receivers() != from.tp()) {
    return absl::InvalidArgumentError(absl::StrCat("the plan feeds ", feed.num_receivers(),
                                                   " ranks, the layout has ", from.tp()));
  }
  ASSIGN_OR_RETURN(const Shares shares, SharesOf(from, to, feed.element_bytes));
  std::vector<std::vector<const TensorBox*>> from_boxes, to_boxes;
  for (int rank = 0; rank < from.tp(); ++rank) from_boxes.push_back(BoxesOf(from, rank));
  for (int rank = 0; rank < to.tp(); ++rank) to_boxes.push_back(BoxesOf(to, rank));

  RelayPlan out;
  out.hop.element_bytes = feed.element_bytes;
  out.hop.bucket_bytes = feed.bucket_bytes;
  out.hop.sent_bytes.resize(from.tp());
  out.hop.received_bytes.resize(to.tp());
  std::vector<int32_t> arrived(from.tp(), 0);
  for (const Message& whole : feed.messages) {
    const int32_t sender = whole.to;
    std::vector<Message> parts(to.tp());
    for (const MessagePiece& held : whole.pieces) {
      const int32_t tensor = held.piece.tensor;
      for (const Share& share : shares[sender][tensor]) {
        for (const PieceMatch& match : Intersect(held.piece, share.piece)) {
          Message& part = parts[share.to];
          part.size_bytes += match.piece.elements() * feed.element_bytes;
          part.pieces.push_back(
              {match.piece, PlaceIn(*from_boxes[sender][tensor], from.tensors[tensor], match.piece),
               PlaceIn(*to_boxes[share.to][tensor], to.tensors[tensor], match.piece)});
        }
      }
    }
    const int32_t after = arrived[sender]++;
    for (int i = 0; i < to.tp(); ++i) {
      const int32_t receiver = (after + i) % to.tp();  // so that not all begin with the same one
      Message& part = parts[receiver];
      if (part.pieces.empty()) continue;
      std::sort(part.pieces.begin(), part.pieces.end(),
                [](const MessagePiece& a, const MessagePiece& b) {
                  return std::pair(a.piece.tensor, a.piece.first) <
                         std::pair(b.piece.tensor, b.piece.first);
                });
      part.from = sender;
      part.to = receiver;
      out.hop.sent_bytes[sender] += part.size_bytes;
      out.hop.received_bytes[receiver] += part.size_bytes;
      out.hop.messages.push_back(std::move(part));
      out.after.push_back(after);
    }
  }
  for (int rank = 0; rank < to.tp(); ++rank) {
    int64_t wanted = 0;
    for (const TensorBox& box : to.parts[rank].boxes) {
      if (brings.empty() || brings[box.tensor]) wanted += box.elements();
    }
    if (out.hop.received_bytes[rank] == wanted * feed.element_bytes) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("receiver ", rank, " wants ", wanted * feed.element_bytes,
                     " bytes but would receive ", out.hop.received_bytes[rank],
                     "; the plan does not deliver everything in the receivers' layout"));
  }
  return out;
}

}  // namespace tandem::weights
