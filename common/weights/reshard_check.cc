#include "common/weights/reshard_check.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"

namespace tandem::weights {
namespace {

// A piece as rows and columns of its tensor.
struct Rectangle {
  int64_t row, rows, column, columns;
};

// True where the holdings of a rank have all of the piece, in those places. `holdings` are sorted
// by tensor.
bool Holds(const std::vector<Holding>& holdings, const Piece& piece, const Place& place) {
  auto at = std::lower_bound(
      holdings.begin(), holdings.end(), piece.tensor,
      [](const Holding& holding, int32_t tensor) { return holding.piece.tensor < tensor; });
  for (; at != holdings.end() && at->piece.tensor == piece.tensor; ++at) {
    const PieceMatches matches = Intersect(piece, at->piece);
    if (matches.size == 0) continue;
    const PieceMatch& match = matches.match[0];
    return match.piece == piece && at->block == place.block &&
           at->offset + match.b_offset == place.offset &&
           (piece.repeat == 1 || match.b_stride == place.stride);
  }
  return false;
}

void AddRectangles(const Piece& piece, int64_t width, std::vector<Rectangle>& out) {
  if (piece.repeat > 1) {
    const int64_t row = piece.first / width;
    out.push_back({row, piece.repeat, piece.first - row * width, piece.length});
    return;
  }
  int64_t first = piece.first;
  int64_t left = piece.length;
  while (left > 0) {
    const int64_t row = first / width;
    const int64_t column = first - row * width;
    Rectangle r{row, 1, column, std::min(left, width - column)};
    if (column == 0 && left >= width) r = {row, left / width, 0, width};
    out.push_back(r);
    first += r.rows * r.columns;
    left -= r.rows * r.columns;
  }
}

// A sweep over the rows with the column ranges that are there.
bool Disjoint(const std::vector<const Piece*>& pieces) {
  int64_t width = 0;
  int64_t end = 0;
  for (const Piece* piece : pieces) {
    if (piece->repeat > 1) width = piece->stride;
    end = std::max(end, piece->first + piece->length);
  }
  if (width == 0) width = end;  // one row
  std::vector<Rectangle> rectangles;
  for (const Piece* piece : pieces) AddRectangles(*piece, width, rectangles);
  struct Event {
    int64_t row;
    bool begins;
    const Rectangle* rectangle;
  };
  std::vector<Event> events;
  for (const Rectangle& r : rectangles) {
    events.push_back({r.row, true, &r});
    events.push_back({r.row + r.rows, false, &r});
  }
  std::sort(events.begin(), events.end(), [](const Event& a, const Event& b) {
    return a.row != b.row ? a.row < b.row : a.begins < b.begins;  // ends first
  });
  std::map<int64_t, int64_t> columns;  // begin -> end
  for (const Event& event : events) {
    const Rectangle& r = *event.rectangle;
    if (!event.begins) {
      columns.erase(r.column);
      continue;
    }
    const auto next = columns.lower_bound(r.column);
    if (next != columns.end() && next->first < r.column + r.columns) return false;
    if (next != columns.begin() && std::prev(next)->second > r.column) return false;
    columns.emplace_hint(next, r.column, r.column + r.columns);
  }
  return true;
}

absl::Status CheckMessage(const ReshardPlan& plan, size_t index, const Holdings& from,
                          const Holdings& to) {
  const Message& message = plan.messages[index];
  const auto wrong = [&](absl::string_view what) {
    return absl::InternalError(
        absl::StrCat("message ", index, " from ", message.from, " to ", message.to, ": ", what));
  };
  if (message.from < 0 || message.from >= from.num_ranks() || message.to < 0 ||
      message.to >= to.num_ranks()) {
    return wrong("no such rank");
  }
  int64_t elements = 0;
  for (const MessagePiece& piece : message.pieces) {
    elements += piece.piece.elements();
    if (piece.piece.elements() <= 0) return wrong("an empty piece");
    if (!Holds(from.ranks[message.from], piece.piece, piece.from)) {
      return wrong(
          absl::StrCat("the sender does not hold these elements of tensor ", piece.piece.tensor));
    }
    if (!Holds(to.ranks[message.to], piece.piece, piece.to)) {
      return wrong(
          absl::StrCat("the receiver does not need these elements of tensor ", piece.piece.tensor));
    }
  }
  if (message.size_bytes != elements * plan.element_bytes || elements == 0 ||
      message.size_bytes > plan.bucket_bytes) {
    return wrong(absl::StrCat("its size is ", message.size_bytes, ", of ", elements,
                              " elements and a bucket of ", plan.bucket_bytes));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckCoverage(const ReshardPlan& plan, const Holdings& from, const Holdings& to) {
  std::vector<std::vector<std::vector<const Piece*>>> arriving(
      to.num_ranks(), std::vector<std::vector<const Piece*>>(to.num_tensors));
  for (size_t i = 0; i < plan.messages.size(); ++i) {
    RETURN_IF_ERROR(CheckMessage(plan, i, from, to));
    for (const MessagePiece& piece : plan.messages[i].pieces) {
      arriving[plan.messages[i].to][piece.piece.tensor].push_back(&piece.piece);
    }
  }
  for (int rank = 0; rank < to.num_ranks(); ++rank) {
    std::vector<int64_t> missing(to.num_tensors);
    for (const Holding& want : to.ranks[rank]) missing[want.piece.tensor] += want.piece.elements();
    for (int tensor = 0; tensor < to.num_tensors; ++tensor) {
      for (const Piece* piece : arriving[rank][tensor]) missing[tensor] -= piece->elements();
      // As many elements as are wanted, all of them wanted (CheckMessage) and none twice: so every
      // one arrives exactly once.
      if (missing[tensor] != 0 || !Disjoint(arriving[rank][tensor])) {
        return absl::InternalError(absl::StrCat(
            "receiver ", rank, ", tensor ", tensor, ": ", missing[tensor], " elements never arrive",
            missing[tensor] == 0 ? ", others arrive twice" : ""));
      }
    }
  }
  return absl::OkStatus();
}

SenderBalance BalanceOf(const ReshardPlan& plan) {
  SenderBalance balance;
  if (plan.sent_bytes.empty()) return balance;
  balance.max_bytes = *std::max_element(plan.sent_bytes.begin(), plan.sent_bytes.end());
  balance.mean_bytes = static_cast<double>(plan.total_bytes()) / plan.num_senders();
  if (balance.mean_bytes > 0) {
    balance.max_over_mean = static_cast<double>(balance.max_bytes) / balance.mean_bytes;
  }
  return balance;
}

}  // namespace tandem::weights
