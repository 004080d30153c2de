#include "common/weights/reshard_plan.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "common/weights/reshard_regions.h"
#include "common/weights/sender_shares.h"

namespace tandem::weights {
namespace {

using PieceList = std::vector<MessagePiece>;

// Every piece that each pair of ranks exchanges: [sender * receivers + receiver].
absl::StatusOr<std::vector<PieceList>> PiecesOfPairs(const Holdings& from, const Holdings& to) {
  const auto held = HoldingsByTensor(from);
  const auto wanted = HoldingsByTensor(to);
  SenderShares shares(from.num_ranks());
  for (int tensor = 0; tensor < to.num_tensors; ++tensor) {
    if (wanted[tensor].empty()) continue;
    const std::vector<Region> regions = RegionsOf(held[tensor]);
    for (const RankHolding& want : wanted[tensor]) {
      const Holding& box = *want.holding;
      int64_t missing = box.piece.elements();
      for (const Region& region : regions) {
        for (const PieceMatch& match : Intersect(region.piece, box.piece)) {
          missing -= match.piece.elements();
          shares.Add(region, match, want.rank,
                     {box.block, box.offset + match.b_offset, match.b_stride});
        }
      }
      if (missing != 0) {
        return absl::FailedPreconditionError(absl::StrCat(
            "receiver ", want.rank, " wants ", box.piece.elements(), " elements of tensor ", tensor,
            "; ", missing, " of these have no sender (negative: several senders hold them)"));
      }
    }
  }
  std::vector<PieceList> pairs(static_cast<size_t>(from.num_ranks()) * to.num_ranks());
  shares.Give([&](int32_t sender, int32_t receiver, const MessagePiece& piece) {
    pairs[static_cast<size_t>(sender) * to.num_ranks() + receiver].push_back(piece);
  });
  return pairs;
}

// Receivers pack by groups of this many rows, so messages end between groups. A multiple of all
// groups: 16, 32 or 64 rows, by element type and CPU.
constexpr int64_t kRowsTogether = 64;

// How many elements of a tensor, from element `first` on, go into a message that has room for
// `room` of `each`, where more are left: 0 where that is better left as it is.
int64_t CutAt(int64_t first, int64_t columns, int64_t room, int64_t each) {
  const int64_t group = kRowsTogether * columns;
  if (group == 0) return room;
  const int64_t end = (first + room) / group * group;
  if (end > first) return end - first;
  return room < each / 2 ? 0 : room;
}

// Cuts what a pair exchanges into messages of at most `most` elements, of much the same size.
// `columns`: of each tensor, or none.
std::vector<Message> CutIntoMessages(PieceList pieces, const std::vector<int64_t>& columns,
                                     int32_t from, int32_t to, int64_t most,
                                     int64_t element_bytes) {
  std::sort(pieces.begin(), pieces.end(), [](const MessagePiece& a, const MessagePiece& b) {
    return std::tuple(a.piece.tensor, a.piece.first) < std::tuple(b.piece.tensor, b.piece.first);
  });
  int64_t elements = 0;
  for (const MessagePiece& piece : pieces) elements += piece.piece.elements();
  const int64_t count = (elements + most - 1) / most;
  const int64_t each = count == 0 ? 0 : (elements + count - 1) / count;
  std::vector<Message> out;
  int64_t room = 0;
  for (const MessagePiece& whole : pieces) {
    PieceCutter cutter(whole.piece, whole.from, whole.to);
    while (cutter.left() > 0) {
      if (room == 0) {
        out.push_back({from, to, 0, {}});
        room = each;
      }
      int64_t take = room;
      const bool is_cut = cutter.left() > room && whole.piece.repeat == 1;
      if (is_cut && !columns.empty()) {
        const int64_t first = whole.piece.first + whole.piece.elements() - cutter.left();
        take = CutAt(first, columns[whole.piece.tensor], room, each);
      }
      if (take > 0) {
        MessagePiece& portion = out.back().pieces.emplace_back();
        cutter.Take(take, portion.piece, portion.from, portion.to);
        room -= portion.piece.elements();
        out.back().size_bytes += portion.piece.elements() * element_bytes;
      }
      if (is_cut) room = 0;
    }
  }
  return out;
}

// The messages of one sender: one to each receiver in turn, beginning with another than the sender
// before.
std::vector<Message> RoundRobin(std::vector<std::vector<Message>> by_receiver, int32_t sender) {
  std::vector<Message> out;
  const size_t receivers = by_receiver.size();
  for (size_t round = 0, left = 1; left > 0; ++round) {
    left = 0;
    for (size_t i = 0; i < receivers; ++i) {
      std::vector<Message>& messages = by_receiver[(sender + i) % receivers];
      if (round < messages.size()) out.push_back(std::move(messages[round]));
      if (round + 1 < messages.size()) ++left;
    }
  }
  return out;
}

}  // namespace

int64_t ReshardPlan::total_bytes() const {
  int64_t sum = 0;
  for (const int64_t bytes : sent_bytes) sum += bytes;
  return sum;
}

int64_t ReshardPlan::num_pieces() const {
  int64_t sum = 0;
  for (const Message& message : messages) sum += static_cast<int64_t>(message.pieces.size());
  return sum;
}

int64_t ReshardPlan::largest_message_bytes() const {
  int64_t largest = 0;
  for (const Message& message : messages) largest = std::max(largest, message.size_bytes);
  return largest;
}

absl::StatusOr<ReshardPlan> MakeReshardPlan(const Holdings& from, const Holdings& to,
                                            const ReshardOptions& options) {
  if (options.element_bytes < 1 || options.bucket_bytes < options.element_bytes) {
    return absl::InvalidArgumentError(absl::StrCat("bucket size: expected at least one element of ",
                                                   options.element_bytes, " bytes, found ",
                                                   options.bucket_bytes));
  }
  if (from.num_tensors != to.num_tensors) {
    return absl::InvalidArgumentError(absl::StrCat("the senders have ", from.num_tensors,
                                                   " tensors, the receivers ", to.num_tensors));
  }
  ASSIGN_OR_RETURN(std::vector<PieceList> pairs, PiecesOfPairs(from, to));
  ReshardPlan plan;
  plan.element_bytes = options.element_bytes;
  plan.bucket_bytes = options.bucket_bytes;
  plan.sent_bytes.resize(from.num_ranks());
  plan.received_bytes.resize(to.num_ranks());
  // Each message with the share of its sender's bytes that goes before it, in 2^-16. Integers, so
  // that every rank sorts alike.
  std::vector<std::pair<int64_t, Message>> ordered;
  for (int32_t sender = 0; sender < from.num_ranks(); ++sender) {
    std::vector<std::vector<Message>> by_receiver;
    for (int32_t receiver = 0; receiver < to.num_ranks(); ++receiver) {
      PieceList& pieces = pairs[static_cast<size_t>(sender) * to.num_ranks() + receiver];
      by_receiver.push_back(CutIntoMessages(std::exchange(pieces, {}), to.columns, sender, receiver,
                                            options.bucket_bytes / options.element_bytes,
                                            options.element_bytes));
      for (const Message& message : by_receiver.back()) {
        plan.sent_bytes[sender] += message.size_bytes;
        plan.received_bytes[receiver] += message.size_bytes;
      }
    }
    int64_t before = 0;
    for (Message& message : RoundRobin(std::move(by_receiver), sender)) {
      const int64_t bytes = message.size_bytes;
      ordered.emplace_back((before << 16) / plan.sent_bytes[sender], std::move(message));
      before += bytes;
    }
  }
  std::stable_sort(ordered.begin(), ordered.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  plan.messages.reserve(ordered.size());
  for (auto& [share, message] : ordered) plan.messages.push_back(std::move(message));
  return plan;
}

}  // namespace tandem::weights
