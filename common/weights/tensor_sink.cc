#include "common/weights/tensor_sink.h"

#include <cstring>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "common/weights/digest.h"
#include "common/weights/receive_table.h"

namespace tandem::weights {

absl::StatusOr<std::unique_ptr<TensorSink>> TensorSink::Create(const TransferPlan& plan,
                                                               TensorMemory memory,
                                                               TensorFinished finished,
                                                               BaseMemory base) {
  for (int i = 0; i < plan.manifest.tensors_size(); ++i) {
    if (const auto size = static_cast<int64_t>(memory(i).size()); size != plan.tensor_bytes[i]) {
      return absl::InternalError(absl::StrCat("tensor ", plan.manifest.tensors(i).name(),
                                              ": its memory has ", size, " bytes, expected ",
                                              plan.tensor_bytes[i]));
    }
  }
  auto sink = absl::WrapUnique(
      new TensorSink(plan, std::move(memory), std::move(finished), std::move(base)));
  sink->digests_ =
      MakeTensorDigests(plan.manifest, std::vector<DigestSum>(plan.manifest.tensors_size()));
  return sink;
}

absl::Status TensorSink::Collect(int bucket, at::Tensor buffer) {
  if (base_ == nullptr) return absl::FailedPreconditionError("the update has no base");
  auto* const bytes = static_cast<std::byte*>(buffer.data_ptr());
  for (const auto& piece : plan_.buckets[bucket].pieces()) {
    const absl::Span<const std::byte> from = base_(piece.tensor());
    if (static_cast<int64_t>(from.size()) != plan_.tensor_bytes[piece.tensor()]) {
      return absl::InternalError(
          absl::StrCat("tensor ", plan_.manifest.tensors(piece.tensor()).name(), ": its base has ",
                       from.size(), " bytes, expected ", plan_.tensor_bytes[piece.tensor()]));
    }
    ForRuns(piece, [&](int64_t tensor_offset, int64_t bucket_offset, size_t size) {
      std::memcpy(bytes + bucket_offset, from.data() + tensor_offset, size);
    });
  }
  return absl::OkStatus();
}

absl::Span<std::byte> TensorSink::Place(int bucket, const BucketSpan& span) {
  std::byte* begin = nullptr;
  std::byte* end = nullptr;
  for (int i = span.first; i < span.first + span.count; ++i) {
    const auto& piece = plan_.buckets[bucket].pieces(i);
    if (piece.repeat() > 1) return {};
    std::byte* const here = memory_(piece.tensor()).data() + piece.tensor_offset();
    if (begin == nullptr) begin = end = here;
    if (here != end) return {};
    end += piece.size_bytes();
  }
  return {begin, static_cast<size_t>(end - begin)};
}

void TensorSink::Placed(int bucket, const BucketSpan& span) {
  for (int i = span.first; i < span.first + span.count; ++i) {
    const auto& piece = plan_.buckets[bucket].pieces(i);
    missing_[piece.tensor()] -= piece.size_bytes();
  }
}

absl::Status TensorSink::Unpack(int bucket, const BucketSpan& span, const at::Tensor& buffer) {
  const auto* bytes = static_cast<const std::byte*>(buffer.const_data_ptr());
  for (int i = span.first; i < span.first + span.count; ++i) {
    const auto& piece = plan_.buckets[bucket].pieces(i);
    std::byte* const to = memory_(piece.tensor()).data();
    ForRuns(piece, [&](int64_t tensor_offset, int64_t bucket_offset, size_t size) {
      std::memcpy(to + tensor_offset, bytes + bucket_offset, size);
    });
  }
  Placed(bucket, span);
  return absl::OkStatus();
}

absl::Status TensorSink::Digest(int bucket) {
  for (const auto& piece : plan_.buckets[bucket].pieces()) {
    const int tensor = piece.tensor();
    if (missing_[tensor] != 0) continue;
    missing_[tensor] = -1;
    const TensorEntry& entry = plan_.manifest.tensors(tensor);
    digests_[tensor] = MakeTensorDigest(entry, SumOfHeld(entry, memory_(tensor)));
    if (finished_ != nullptr) RETURN_IF_ERROR(finished_(tensor));
  }
  return absl::OkStatus();
}

}  // namespace tandem::weights
