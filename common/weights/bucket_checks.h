// Checks shared by all bucket tables that a peer sends, whatever their pieces.
#ifndef TANDEM_COMMON_WEIGHTS_BUCKET_CHECKS_H_
#define TANDEM_COMMON_WEIGHTS_BUCKET_CHECKS_H_

#include <google/protobuf/repeated_field.h>

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/weights/bucket_plan.h"

namespace tandem::weights {

inline absl::Status CheckBucketCount(const google::protobuf::RepeatedPtrField<Bucket>& buckets) {
  if (buckets.size() <= kMaxBuckets) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("buckets: expected at most ", kMaxBuckets, ", found ", buckets.size()));
}

// `bytes`: total size of the pieces of bucket `number`.
inline absl::Status CheckBucketSize(int number, const Bucket& bucket, int64_t bytes) {
  if (bytes > 0 && bytes == bucket.size_bytes()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("bucket ", number, ": size_bytes is ",
                                                 bucket.size_bytes(), ", its pieces have ", bytes));
}

// Checks that bucket `number` refers to an existing tensor.
inline absl::Status CheckTensorNumber(int number, int tensor, const Manifest& manifest) {
  if (tensor >= 0 && tensor < manifest.tensors_size()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("bucket ", number, ": tensor ", tensor, " of ", manifest.tensors_size()));
}

// Returns the bytes of each tensor that the buckets must bring.
inline std::vector<int64_t> BytesToBring(const TransferPlan& plan) {
  std::vector<int64_t> bytes;
  for (int tensor = 0; tensor < plan.manifest.tensors_size(); ++tensor) {
    bytes.push_back(plan.BroughtBytes(tensor));
  }
  return bytes;
}

// Checks that the buckets cover every byte. `left`: bytes of each tensor that they do not cover.
inline absl::Status CheckNothingIsLeft(const TransferPlan& plan, const std::vector<int64_t>& left) {
  for (int tensor = 0; tensor < plan.manifest.tensors_size(); ++tensor) {
    if (left[tensor] == 0) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("buckets: tensor ", plan.manifest.tensors(tensor).name(), " lacks ",
                     left[tensor], " of ", plan.tensor_bytes[tensor], " bytes"));
  }
  return absl::OkStatus();
}

}  // namespace tandem::weights

#endif  // TANDEM_COMMON_WEIGHTS_BUCKET_CHECKS_H_
