#include "services/rollout/receive/live_stream.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "common/rpc/status_conversion.h"
#include "common/status/status_macros.h"
#include "common/weights/bucket_plan.h"
#include "common/weights/manifest.h"

namespace tandem::rollout {
namespace {

absl::Status CheckBucketBytes(int64_t bucket_bytes, int64_t total_bytes) {
  if (bucket_bytes <= 0 || bucket_bytes > weights::kMaxBucketBytes || bucket_bytes % 8 != 0) {
    return rpc::InvalidField(
        "bucket_bytes", absl::StrCat("expected a multiple of 8, at most ", weights::kMaxBucketBytes,
                                     ", found ", bucket_bytes));
  }
  if (total_bytes / bucket_bytes >= weights::kMaxBuckets) {
    return rpc::InvalidField(
        "bucket_bytes", absl::StrCat("expected at most ", weights::kMaxBuckets, " buckets of ",
                                     total_bytes, " bytes; make it larger than ", bucket_bytes));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<LiveStream::Part>> LiveStream::PartsOf(
    const WeightStore& store, const v1::ReadWeightsRequest& request) {
  const auto& tensors = store.manifest().tensors();
  const auto& kept = request.kept_tensors();
  std::vector<Part> parts;
  int next_kept = 0;
  int64_t end = 0;
  for (int tensor = 0; tensor < tensors.size(); ++tensor) {
    if (next_kept < kept.size() && kept[next_kept] == tensor) {
      ++next_kept;
      continue;
    }
    ASSIGN_OR_RETURN(const int64_t bytes, weights::TensorBytes(tensors[tensor]));
    parts.push_back({tensor, end, end + bytes});
    end += bytes;
  }
  if (next_kept == kept.size() && !parts.empty()) return parts;
  return rpc::InvalidField("kept_tensors",
                           absl::StrCat("expected some of the numbers 0 to ", tensors.size() - 1,
                                        ", ascending and not all; found ", kept.size(),
                                        ", of which the first ", next_kept, " fit"));
}

absl::StatusOr<std::unique_ptr<LiveStream>> LiveStream::Open(
    const WeightStore& store, const v1::ReadWeightsRequest& request) {
  if (request.manifest_digest() != store.manifest().digest()) {
    return absl::FailedPreconditionError(absl::StrCat("manifest_digest: expected ",
                                                      store.manifest().digest(), ", found ",
                                                      request.manifest_digest()));
  }
  ASSIGN_OR_RETURN(std::vector<Part> parts, PartsOf(store, request));
  const int64_t total = parts.back().end;
  RETURN_IF_ERROR(CheckBucketBytes(request.bucket_bytes(), total));
  const int64_t num_buckets = (total + request.bucket_bytes() - 1) / request.bucket_bytes();
  if (request.first_bucket() < 0 || request.first_bucket() >= num_buckets) {
    return absl::OutOfRangeError(absl::StrCat("first_bucket: expected 0 to ", num_buckets - 1,
                                              ", found ", request.first_bucket()));
  }
  if (const int64_t live = store.live_version(); live < 0 || live != request.policy_version()) {
    return rpc::WithReason(
        absl::FailedPreconditionError(
            absl::StrCat("policy_version: ", live, " is live, found ", request.policy_version())),
        "OTHER_VERSION",
        {{"live", absl::StrCat(live)}, {"actual", absl::StrCat(request.policy_version())}});
  }
  auto stream = absl::WrapUnique(
      new LiveStream(store, request.policy_version(), request.bucket_bytes(), std::move(parts)));
  stream->position_ = request.first_bucket() * request.bucket_bytes();
  return stream;
}

absl::Status LiveStream::Copy(int64_t from, int64_t size, char* to) const {
  auto part = std::upper_bound(parts_.begin(), parts_.end(), from,
                               [](int64_t at, const Part& part) { return at < part.end; });
  for (; size > 0; ++part) {
    const auto [tensor, begin, end] = *part;
    const int64_t count = std::min(size, end - from);
    const absl::Span<std::byte> part_to(reinterpret_cast<std::byte*>(to),
                                        static_cast<size_t>(count));
    const absl::Span<const std::byte> bytes = store_.Live(tensor);
    if (bytes.empty() && store_.packs()) {
      RETURN_IF_ERROR(store_.ReadLive(tensor, from - begin, part_to));
    } else if (static_cast<int64_t>(bytes.size()) != end - begin) {
      return absl::InternalError(absl::StrCat("tensor ", store_.manifest().tensors(tensor).name(),
                                              ": its memory has ", bytes.size(),
                                              " bytes, expected ", end - begin));
    } else {
      RETURN_IF_ERROR(weights::ReadBytes(store_.ops(), bytes.data() + (from - begin), part_to));
    }
    from += count;
    to += count;
    size -= count;
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> LiveStream::Next(v1::ReadWeightsResponse& message) {
  if (position_ == total_bytes()) return false;
  if (const int64_t live = store_.live_version(); live != version_) {
    return absl::AbortedError(absl::StrCat("policy_version: ", version_,
                                           " was replaced while it was read, ", live, " is live"));
  }
  const int64_t bucket = position_ / bucket_bytes_;
  const int64_t bucket_end = std::min((bucket + 1) * bucket_bytes_, total_bytes());
  const int64_t size = std::min(kStreamMessageBytes, bucket_end - position_);
  message.set_bucket(static_cast<int32_t>(bucket));
  std::string& data = *message.mutable_data();
  data.resize(size);
  RETURN_IF_ERROR(Copy(position_, size, data.data()));
  // Their memory may have been released meanwhile.
  if (store_.live_version() != version_) {
    return absl::AbortedError(
        absl::StrCat("policy_version: ", version_, " was replaced while it was read"));
  }
  bucket_digest_.Update(data.data(), data.size());
  position_ += size;
  if (position_ == bucket_end) {
    message.set_bucket_digest(bucket_digest_.Hex());
    bucket_digest_.Reset();
  } else {
    message.clear_bucket_digest();
  }
  return true;
}

}  // namespace tandem::rollout
