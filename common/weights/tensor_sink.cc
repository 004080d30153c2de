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
                                                               BytesArrived arrived,
                                                               BaseMemory base) {
  for (int i = 0; i < plan.manifest.tensors_size(); ++i) {
    if (const auto size = static_cast<int64_t>(memory(i).size()); size != plan.tensor_bytes[i]) {
      return absl::InternalError(absl::StrCat("tensor ", plan.manifest.tensors(i).name(),
                                              ": its memory has ", size, " bytes, expected ",
                                              plan.tensor_bytes[i]));
    }
  }
  auto sink = absl::WrapUnique(
      new TensorSink(plan, std::move(memory), std::move(arrived), std::move(base)));
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

absl::Status TensorSink::Unpack(int bucket, const BucketSpan& span, const at::Tensor& buffer) {
  const auto* bytes = static_cast<const std::byte*>(buffer.const_data_ptr());
  for (int i = span.first; i < span.first + span.count; ++i) {
    const auto& piece = plan_.buckets[bucket].pieces(i);
    std::byte* const to = memory_(piece.tensor()).data();
    ForRuns(piece, [&](int64_t tensor_offset, int64_t bucket_offset, size_t size) {
      std::memcpy(to + tensor_offset, bytes + bucket_offset, size);
    });
  }
  return absl::OkStatus();
}

absl::Status TensorSink::Digest(int bucket) {
  for (const auto& piece : plan_.buckets[bucket].pieces()) {
    const int tensor = piece.tensor();
    const TensorEntry& entry = plan_.manifest.tensors(tensor);
    const absl::Span<const std::byte> held = memory_(tensor);
    absl::Status status;
    ForRuns(piece, [&](int64_t tensor_offset, int64_t, size_t size) {
      if (!status.ok()) return;
      AddHeld(entry, held, tensor_offset, static_cast<int64_t>(size), sums_[tensor]);
      if (arrived_ != nullptr) {
        status = arrived_(tensor, tensor_offset, static_cast<int64_t>(size));
      }
    });
    RETURN_IF_ERROR(status);
    missing_[tensor] -= piece.size_bytes();
    if (missing_[tensor] == 0) digests_[tensor] = MakeTensorDigest(entry, sums_[tensor]);
  }
  return absl::OkStatus();
}

}  // namespace tandem::weights
