#include "common/weights/broadcast_part.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "common/weights/holdings.h"
#include "common/weights/receive_table.h"

namespace tandem::weights {
namespace {

using common::v1::BucketPiece;

// A piece of a tensor in bytes, where it lies in a bucket and in the rank's part of the tensor.
struct Found {
  int32_t tensor = 0;
  BucketRuns in_bucket;
  int64_t held_offset = 0;
  int64_t held_stride = 0;
};

// Adds a piece to the end of a message, for the leader and for the receiver.
void Append(const Found& found, BucketCut& cut, Bucket& bucket) {
  const BucketRuns& runs = found.in_bucket;
  if (cut.runs.empty()) cut.first_tensor = found.tensor;
  const int64_t size = runs.size_bytes * runs.repeat;
  BucketPiece& piece = *bucket.add_pieces();
  piece.set_tensor(found.tensor);
  piece.set_tensor_offset(found.held_offset);
  piece.set_bucket_offset(cut.size_bytes);
  piece.set_size_bytes(size);
  if (runs.repeat > 1 && found.held_stride != runs.size_bytes) {
    piece.set_repeat(runs.repeat);
    piece.set_stride(found.held_stride);
  }
  cut.size_bytes += size;
  bucket.set_size_bytes(cut.size_bytes);
  // Neighbours become one range, such as the experts of a rank.
  if (runs.repeat == 1 && !cut.runs.empty()) {
    BucketRuns& last = cut.runs.back();
    if (last.repeat == 1 && last.offset + last.size_bytes == runs.offset) {
      last.size_bytes += runs.size_bytes;
      return;
    }
  }
  cut.runs.push_back(runs);
}

bool IsWhole(const TensorBox& box, const LogicalTensor& tensor) {
  return box.rows == tensor.rows && box.columns == tensor.columns;
}

}  // namespace

std::vector<bool> HeldByAll(absl::Span<const ModelLayout* const> layouts) {
  std::vector<bool> out(layouts.empty() ? 0 : layouts.front()->tensors.size(), true);
  for (const ModelLayout* const layout : layouts) {
    for (const PartLayout& part : layout->parts) {
      std::vector<bool> whole(out.size(), false);
      for (const TensorBox& box : part.boxes) {
        whole[box.tensor] = IsWhole(box, layout->tensors[box.tensor]);
      }
      for (size_t tensor = 0; tensor < out.size(); ++tensor) {
        out[tensor] = out[tensor] && whole[tensor];
      }
    }
  }
  return out;
}

absl::StatusOr<RankShare> ShareOfRank(const TransferPlan& whole, const std::vector<bool>& to_all,
                                      const ModelLayout& layout, int rank) {
  const auto wrong = [](absl::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat("broadcast: the layout has ", what));
  };
  if (layout.tensors.size() != whole.tensor_bytes.size() ||
      to_all.size() != whole.tensor_bytes.size()) {
    return wrong(
        absl::StrCat(layout.tensors.size(), " tensors, the model ", whole.tensor_bytes.size()));
  }
  std::vector<std::vector<Holding>> held(layout.tensors.size());
  for (const TensorBox& box : layout.parts[rank].boxes) {
    held[box.tensor] = PiecesOfBox(layout.tensors[box.tensor], box, 0, box.elements());
  }
  RankShare out;
  for (const Bucket& from : whole.buckets) {
    BucketCut& all = out.all.emplace_back();
    BucketCut& part = out.part.emplace_back();
    Bucket for_all, for_part;
    for_part.set_source(kToPart);
    for (const BucketPiece& piece : from.pieces()) {
      const int tensor = piece.tensor();
      const int64_t elements = layout.tensors[tensor].elements();
      const int64_t element = elements == 0 ? 0 : whole.tensor_bytes[tensor] / elements;
      if (element == 0 || element * elements != whole.tensor_bytes[tensor]) {
        return wrong(absl::StrCat(elements, " elements of a tensor of ", whole.tensor_bytes[tensor],
                                  " bytes"));
      }
      const int64_t count = piece.size_bytes() / element;
      const Piece range{tensor, piece.tensor_offset() / element, count, count, 1};
      for (const Holding& holding : held[tensor]) {
        for (const PieceMatch& match : Intersect(range, holding.piece)) {
          const Found found{
              tensor,
              {piece.bucket_offset() + match.a_offset * element, match.piece.length * element,
               match.piece.repeat, match.a_stride * element},
              (holding.offset + match.b_offset) * element,
              match.b_stride * element};
          Append(found, to_all[tensor] ? all : part, to_all[tensor] ? for_all : for_part);
        }
      }
    }
    if (for_all.pieces_size() > 0) out.buckets.push_back(std::move(for_all));
    if (for_part.pieces_size() > 0) out.buckets.push_back(std::move(for_part));
  }
  return out;
}

std::string TagForAll(const Manifest& manifest, int first_tensor) {
  return absl::StrCat("bytes for all ranks, from ", manifest.tensors(first_tensor).name());
}

bool HasParts(const google::protobuf::RepeatedPtrField<Bucket>& buckets) {
  return std::any_of(buckets.begin(), buckets.end(),
                     [](const Bucket& bucket) { return bucket.source() != 0; });
}

absl::StatusOr<TransferPlan> CheckBroadcastPart(
    Manifest manifest, const google::protobuf::RepeatedPtrField<Bucket>& buckets,
    bool keeps_frozen) {
  for (int b = 0; b < buckets.size(); ++b) {
    if (buckets[b].source() == 0 || buckets[b].source() == kToPart) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("bucket ", b, ": source: expected 0 (from the leader to all ranks) or ",
                     kToPart, " (to the ranks with this part), found ", buckets[b].source()));
  }
  return CheckReceiveTable(std::move(manifest), buckets, keeps_frozen);
}

}  // namespace tandem::weights
