#include "common/weights/broadcast_part.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "common/weights/bucket_checks.h"
#include "common/weights/holdings.h"
#include "common/weights/receive_table.h"

namespace tandem::weights {
namespace {

using common::v1::BucketPiece;

// Whether the runs lie within a bucket of so many bytes.
bool IsWithinBucket(const BucketPiece& piece, int64_t bucket_bytes) {
  const int64_t runs = std::max<int64_t>(1, piece.repeat());
  const int64_t run = piece.size_bytes() / runs;
  const int64_t stride = piece.bucket_stride() == 0 ? run : piece.bucket_stride();
  // Divides, because a product of a peer's numbers could overflow.
  if (stride < run || (runs > 1 && stride > bucket_bytes / (runs - 1))) return false;
  const int64_t reach = (runs - 1) * stride + run;
  return piece.bucket_offset() >= 0 && reach <= bucket_bytes &&
         piece.bucket_offset() <= bucket_bytes - reach;
}

}  // namespace

absl::StatusOr<std::vector<Bucket>> BucketsOfPart(const TransferPlan& whole,
                                                  const ModelLayout& layout, int rank) {
  const auto wrong = [](absl::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat("broadcast: the layout has ", what));
  };
  if (layout.tensors.size() != whole.tensor_bytes.size()) {
    return wrong(
        absl::StrCat(layout.tensors.size(), " tensors, the model ", whole.tensor_bytes.size()));
  }
  std::vector<std::vector<Holding>> held(layout.tensors.size());
  for (const TensorBox& box : layout.parts[rank].boxes) {
    held[box.tensor] = PiecesOfBox(layout.tensors[box.tensor], box, 0, box.elements());
  }
  std::vector<Bucket> out;
  for (const Bucket& bucket : whole.buckets) {
    Bucket& taken = out.emplace_back();
    taken.set_size_bytes(bucket.size_bytes());
    for (const BucketPiece& piece : bucket.pieces()) {
      const int64_t elements = layout.tensors[piece.tensor()].elements();
      const int64_t element = elements == 0 ? 0 : whole.tensor_bytes[piece.tensor()] / elements;
      if (element == 0 || element * elements != whole.tensor_bytes[piece.tensor()]) {
        return wrong(absl::StrCat(elements, " elements of a tensor of ",
                                  whole.tensor_bytes[piece.tensor()], " bytes"));
      }
      const int64_t count = piece.size_bytes() / element;
      const Piece range{piece.tensor(), piece.tensor_offset() / element, count, count, 1};
      for (const Holding& holding : held[piece.tensor()]) {
        for (const PieceMatch& match : Intersect(range, holding.piece)) {
          BucketPiece& part = *taken.add_pieces();
          part.set_tensor(piece.tensor());
          part.set_tensor_offset((holding.offset + match.b_offset) * element);
          part.set_bucket_offset(piece.bucket_offset() + match.a_offset * element);
          part.set_size_bytes(match.piece.elements() * element);
          if (match.piece.repeat == 1) continue;
          part.set_repeat(match.piece.repeat);
          part.set_stride(match.b_stride * element);
          part.set_bucket_stride(match.a_stride * element);
        }
      }
    }
  }
  return out;
}

absl::StatusOr<TransferPlan> CheckBroadcastPart(
    Manifest manifest, const google::protobuf::RepeatedPtrField<Bucket>& buckets,
    bool keeps_frozen) {
  ASSIGN_OR_RETURN(TransferPlan plan, PlanOfManifest(std::move(manifest), keeps_frozen));
  RETURN_IF_ERROR(CheckBucketCount(buckets));
  std::vector<int64_t> left = BytesToBring(plan);
  for (int b = 0; b < buckets.size(); ++b) {
    const int64_t size = buckets[b].size_bytes();
    RETURN_IF_ERROR(CheckBucketSize(b, buckets[b], std::min(size, kMaxBucketBytes)));
    for (const BucketPiece& piece : buckets[b].pieces()) {
      const int tensor = piece.tensor();
      RETURN_IF_ERROR(CheckTensorNumber(b, tensor, plan.manifest));
      if (!IsWithin(piece, plan.tensor_bytes[tensor]) || !IsWithinBucket(piece, size) ||
          piece.size_bytes() > left[tensor]) {
        return absl::InvalidArgumentError(absl::StrCat(
            "bucket ", b, " of ", size, " bytes: tensor ", plan.manifest.tensors(tensor).name(),
            " has ", plan.tensor_bytes[tensor], " bytes, of which ", left[tensor],
            " remain; found ", piece.size_bytes(), " from byte ", piece.tensor_offset(),
            " at byte ", piece.bucket_offset(), " of the bucket"));
      }
      left[tensor] -= piece.size_bytes();
    }
    plan.largest_bucket_bytes = std::max(plan.largest_bucket_bytes, size);
  }
  RETURN_IF_ERROR(CheckNothingIsLeft(plan, left));
  plan.buckets.assign(buckets.begin(), buckets.end());
  return plan;
}

}  // namespace tandem::weights
