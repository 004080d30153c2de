#include "common/weights/bucket_plan.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "common/weights/bucket_checks.h"

namespace tandem::weights {
namespace {

constexpr int64_t kGrain = 8;  // no element is cut
// Small models have several buckets too, so that the phases of an update overlap.
constexpr int64_t kFewestBuckets = 8;
constexpr int64_t kSmallestBucketBytes = int64_t{4} << 20;
// A message is digested and packed while it is in the core's cache, so it is small; a large model
// has larger ones, which bounds their number.
constexpr int64_t kSmallestMessageBytes = int64_t{1} << 20;
constexpr int64_t kMessagesOfModel = 1024;
constexpr int64_t kBytesUnderWay = int64_t{16} << 20;

}  // namespace

absl::StatusOr<TransferPlan> PlanOfManifest(Manifest manifest, bool keeps_frozen) {
  RETURN_IF_ERROR(CheckManifest(manifest));
  TransferPlan plan;
  plan.manifest = std::move(manifest);
  plan.keeps_frozen = keeps_frozen;
  for (const TensorEntry& tensor : plan.manifest.tensors()) {
    ASSIGN_OR_RETURN(const int64_t bytes, TensorBytes(tensor));
    plan.tensor_bytes.push_back(bytes);
    plan.total_bytes += bytes;
  }
  return plan;
}

int64_t TransferPlan::BroughtBytes() const {
  int64_t bytes = 0;
  for (int tensor = 0; tensor < manifest.tensors_size(); ++tensor) bytes += BroughtBytes(tensor);
  return bytes;
}

std::string TransferPlan::BucketName(int bucket) const {
  const Bucket& b = buckets[bucket];
  return absl::StrCat(
      "bucket ", bucket, " of ", buckets.size(), ", from ",
      b.pieces_size() > 0 ? manifest.tensors(b.pieces(0).tensor()).name() : "nothing");
}

int64_t ChooseBucketBytes(int64_t most, int64_t total_bytes) {
  return std::min(most, std::max(total_bytes / kFewestBuckets, kSmallestBucketBytes));
}

int64_t ChooseMessageBytes(int64_t most, int64_t total_bytes) {
  return std::min(most, std::max(total_bytes / kMessagesOfModel, kSmallestMessageBytes));
}

int MessagesUnderWay(int64_t largest_bytes) {
  return static_cast<int>(
      std::clamp<int64_t>(kBytesUnderWay / std::max<int64_t>(1, largest_bytes), 2, 8));
}

absl::StatusOr<TransferPlan> MakeTransferPlan(Manifest manifest, int64_t bucket_bytes,
                                              bool keeps_frozen) {
  if (bucket_bytes <= 0 || bucket_bytes > kMaxBucketBytes) {
    return absl::InvalidArgumentError(absl::StrCat("bucket size: expected 1 to ", kMaxBucketBytes,
                                                   " bytes, found ", bucket_bytes));
  }
  ASSIGN_OR_RETURN(TransferPlan plan, PlanOfManifest(std::move(manifest), keeps_frozen));
  const int64_t capacity = std::max(kGrain, bucket_bytes / kGrain * kGrain);
  if (plan.total_bytes / capacity >= kMaxBuckets) {
    return absl::InvalidArgumentError(
        absl::StrCat("bucket size: ", bucket_bytes, " bytes makes more than ", kMaxBuckets,
                     " buckets of a model of ", plan.total_bytes, "; make it larger"));
  }
  for (int tensor = 0; tensor < plan.manifest.tensors_size(); ++tensor) {
    const int64_t bytes = plan.BroughtBytes(tensor);
    for (int64_t offset = 0; offset < bytes;) {
      if (plan.buckets.empty() || plan.buckets.back().size_bytes() == capacity)
        plan.buckets.emplace_back();
      Bucket& bucket = plan.buckets.back();
      auto& piece = *bucket.add_pieces();
      piece.set_tensor(tensor);
      piece.set_tensor_offset(offset);
      piece.set_bucket_offset(bucket.size_bytes());
      piece.set_size_bytes(std::min(capacity - bucket.size_bytes(), bytes - offset));
      bucket.set_size_bytes(bucket.size_bytes() + piece.size_bytes());
      offset += piece.size_bytes();
    }
  }
  for (const Bucket& bucket : plan.buckets) {
    plan.largest_bucket_bytes = std::max(plan.largest_bucket_bytes, bucket.size_bytes());
  }
  return plan;
}

absl::StatusOr<TransferPlan> CheckTransferPlan(
    Manifest manifest, const google::protobuf::RepeatedPtrField<Bucket>& buckets,
    bool keeps_frozen) {
  ASSIGN_OR_RETURN(TransferPlan plan, PlanOfManifest(std::move(manifest), keeps_frozen));
  RETURN_IF_ERROR(CheckBucketCount(buckets));
  int tensor = 0;      // where the stream stands
  int64_t offset = 0;  // within it
  const auto skip_complete = [&] {
    while (tensor < plan.manifest.tensors_size() && offset == plan.BroughtBytes(tensor)) {
      ++tensor;
      offset = 0;
    }
  };
  skip_complete();
  for (int b = 0; b < buckets.size(); ++b) {
    int64_t size = 0;
    for (const auto& piece : buckets[b].pieces()) {
      const auto wrong = [&](absl::string_view what) {
        return absl::InvalidArgumentError(absl::StrCat(
            "bucket ", b, ": ", what, ": expected tensor ", tensor, " (",
            tensor < plan.manifest.tensors_size() ? plan.manifest.tensors(tensor).name()
                                                  : "no tensor remains",
            ") from byte ", offset, " at byte ", size, " of the bucket, found tensor ",
            piece.tensor(), " from byte ", piece.tensor_offset(), " at byte ",
            piece.bucket_offset(), ", ", piece.size_bytes(), " bytes"));
      };
      if (tensor == plan.manifest.tensors_size()) return wrong("more bytes than the tensors have");
      if (piece.tensor() != tensor || piece.tensor_offset() != offset ||
          piece.bucket_offset() != size) {
        return wrong("a gap, an overlap or a wrong order");
      }
      if (piece.size_bytes() <= 0 || piece.size_bytes() > plan.tensor_bytes[tensor] - offset ||
          piece.size_bytes() > kMaxBucketBytes - size) {
        return wrong("the size is out of range");
      }
      size += piece.size_bytes();
      offset += piece.size_bytes();
      skip_complete();
    }
    RETURN_IF_ERROR(CheckBucketSize(b, buckets[b], size));
    plan.largest_bucket_bytes = std::max(plan.largest_bucket_bytes, size);
  }
  if (tensor < plan.manifest.tensors_size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("buckets: tensor ", plan.manifest.tensors(tensor).name(),
                     " is covered up to byte ", offset, " of ", plan.tensor_bytes[tensor]));
  }
  plan.buckets.assign(buckets.begin(), buckets.end());
  return plan;
}

}  // namespace tandem::weights
