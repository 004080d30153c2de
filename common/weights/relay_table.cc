#include "common/weights/relay_table.h"

#include "absl/strings/str_cat.h"
#include "common/weights/receive_table.h"

namespace tandem::weights {

RelayedBuckets RelayedFor(const RelayPlan& plan, int sender, int first_receiver,
                          const std::vector<std::vector<int64_t>>& tensor_bytes) {
  RelayedBuckets out;
  for (size_t i = 0; i < plan.hop.messages.size(); ++i) {
    const Message& message = plan.hop.messages[i];
    if (message.from != sender) continue;
    RelayedBucket& relayed = *out.Add();
    relayed.set_after_bucket(plan.after[i]);
    relayed.set_to(first_receiver + message.to);
    Message here = message;
    for (MessagePiece& part : here.pieces) part.to = part.from;
    *relayed.mutable_pieces() = BucketOf(plan.hop, here).pieces();
    // One message for each range that is contiguous at the receiver, so that it can receive in
    // place.
    for (const BucketSpan& span : SpansOf(BucketOf(plan.hop, message), tensor_bytes[message.to])) {
      relayed.add_message_pieces(span.count);
    }
  }
  return out;
}

int64_t SizeBytes(const RelayedBucket& relayed) {
  int64_t bytes = 0;
  for (const auto& piece : relayed.pieces()) bytes += piece.size_bytes();
  return bytes;
}

absl::Status CheckRelayed(const TransferPlan& plan, const RelayedBuckets& relayed) {
  if (relayed.size() > kMaxBuckets) {
    return absl::InvalidArgumentError(
        absl::StrCat("relayed: expected at most ", kMaxBuckets, ", found ", relayed.size()));
  }
  int after = 0;
  for (int i = 0; i < relayed.size(); ++i) {
    const RelayedBucket& bucket = relayed[i];
    if (bucket.after_bucket() < after ||
        bucket.after_bucket() >= static_cast<int>(plan.buckets.size())) {
      return absl::InvalidArgumentError(absl::StrCat(
          "relayed ", i, ": expected to come after bucket ", after, " or a later one of ",
          plan.buckets.size(), ", found ", bucket.after_bucket()));
    }
    after = bucket.after_bucket();
    int64_t size = 0;
    for (const auto& piece : bucket.pieces()) {
      const int tensor = piece.tensor();
      if (tensor < 0 || tensor >= plan.manifest.tensors_size() || piece.bucket_offset() != size ||
          !IsWithin(piece, plan.tensor_bytes[tensor]) || piece.bucket_stride() != 0 ||
          piece.size_bytes() > kMaxBucketBytes - size) {
        return absl::InvalidArgumentError(absl::StrCat(
            "relayed ", i, ": ", piece.size_bytes(), " bytes from byte ", piece.tensor_offset(),
            " of tensor ", tensor, " of ", plan.manifest.tensors_size(), " at byte ",
            piece.bucket_offset(), ", expected a range within a tensor at byte ", size));
      }
      size += piece.size_bytes();
    }
    int64_t pieces = 0;
    bool empty = bucket.message_pieces().empty();
    for (const int count : bucket.message_pieces()) {
      pieces += count;
      empty |= count <= 0;
    }
    if (empty || pieces != bucket.pieces_size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("relayed ", i, ": its messages do not add up to its ", bucket.pieces_size(),
                       " pieces, or one is empty"));
    }
  }
  return absl::OkStatus();
}

}  // namespace tandem::weights
