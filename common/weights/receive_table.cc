#include "common/weights/receive_table.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "common/weights/bucket_checks.h"

namespace tandem::weights {
namespace {

using common::v1::BucketPiece;

int64_t Runs(const BucketPiece& piece) { return std::max<int64_t>(1, piece.repeat()); }

}  // namespace

bool IsWithin(const BucketPiece& piece, int64_t tensor_bytes) {
  const int64_t runs = Runs(piece);
  const int64_t size = piece.size_bytes();
  if (size <= 0 || size > tensor_bytes || size % runs != 0 || piece.repeat() < 0) return false;
  const int64_t run = size / runs;
  // Divides instead of multiplying: the numbers come from a peer, and a product could overflow.
  if (runs > 1 && (piece.stride() < run || piece.stride() > tensor_bytes / (runs - 1))) {
    return false;
  }
  const int64_t reach = runs > 1 ? (runs - 1) * piece.stride() + run : run;
  return piece.tensor_offset() >= 0 && reach <= tensor_bytes &&
         piece.tensor_offset() <= tensor_bytes - reach;
}

Bucket BucketOf(const ReshardPlan& plan, const Message& message) {
  Bucket bucket;
  bucket.set_source(message.from);
  for (const MessagePiece& part : message.pieces) {
    BucketPiece& piece = *bucket.add_pieces();
    piece.set_tensor(part.to.block);
    piece.set_tensor_offset(part.to.offset * plan.element_bytes);
    piece.set_bucket_offset(bucket.size_bytes());
    piece.set_size_bytes(part.piece.elements() * plan.element_bytes);
    if (part.piece.repeat > 1 && part.to.stride != part.piece.length) {
      piece.set_repeat(part.piece.repeat);
      piece.set_stride(part.to.stride * plan.element_bytes);
    }
    bucket.set_size_bytes(bucket.size_bytes() + piece.size_bytes());
  }
  return bucket;
}

std::vector<Bucket> BucketsFor(const ReshardPlan& plan, int receiver) {
  std::vector<Bucket> buckets;
  for (const Message& message : plan.messages) {
    if (message.to == receiver) buckets.push_back(BucketOf(plan, message));
  }
  return buckets;
}

std::vector<BucketSpan> SpansOf(const Bucket& bucket, const std::vector<int64_t>& tensor_bytes) {
  const auto follows = [&](const BucketPiece& before, const BucketPiece& piece) {
    if (Runs(before) > 1 || Runs(piece) > 1) return false;
    const int64_t end = before.tensor_offset() + before.size_bytes();
    if (piece.tensor() == before.tensor()) return piece.tensor_offset() == end;
    return piece.tensor() == before.tensor() + 1 && end == tensor_bytes[before.tensor()] &&
           piece.tensor_offset() == 0;
  };
  std::vector<BucketSpan> spans;
  for (int i = 0; i < bucket.pieces_size(); ++i) {
    const BucketPiece& piece = bucket.pieces(i);
    if (i == 0 || !follows(bucket.pieces(i - 1), piece)) {
      spans.push_back({i, 0, piece.bucket_offset(), 0});
    }
    ++spans.back().count;
    spans.back().size_bytes += piece.size_bytes();
  }
  return spans;
}

absl::StatusOr<TransferPlan> CheckReceiveTable(
    Manifest manifest, const google::protobuf::RepeatedPtrField<Bucket>& buckets,
    bool keeps_frozen) {
  ASSIGN_OR_RETURN(TransferPlan plan, PlanOfManifest(std::move(manifest), keeps_frozen));
  RETURN_IF_ERROR(CheckBucketCount(buckets));
  std::vector<int64_t> left = BytesToBring(plan);
  for (int b = 0; b < buckets.size(); ++b) {
    int64_t size = 0;
    for (const BucketPiece& piece : buckets[b].pieces()) {
      const int tensor = piece.tensor();
      RETURN_IF_ERROR(CheckTensorNumber(b, tensor, plan.manifest));
      if (piece.bucket_offset() != size || !IsWithin(piece, plan.tensor_bytes[tensor]) ||
          piece.bucket_stride() != 0 || piece.size_bytes() > left[tensor] ||
          piece.size_bytes() > kMaxBucketBytes - size) {
        return absl::InvalidArgumentError(absl::StrCat(
            "bucket ", b, ": tensor ", plan.manifest.tensors(tensor).name(), " has ",
            plan.tensor_bytes[tensor], " bytes, of which ", left[tensor], " remain; found ",
            piece.size_bytes(), " from byte ", piece.tensor_offset(), " at byte ",
            piece.bucket_offset(), " of the bucket, expected ", size));
      }
      left[tensor] -= piece.size_bytes();
      size += piece.size_bytes();
    }
    RETURN_IF_ERROR(CheckBucketSize(b, buckets[b], size));
    plan.largest_bucket_bytes = std::max(plan.largest_bucket_bytes, size);
  }
  RETURN_IF_ERROR(CheckNothingIsLeft(plan, left));
  plan.buckets.assign(buckets.begin(), buckets.end());
  return plan;
}

}  // namespace tandem::weights
