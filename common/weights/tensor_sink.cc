#include "common/weights/tensor_sink.h"

#include <cstring>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "common/weights/digest.h"

namespace tandem::weights {

absl::StatusOr<std::unique_ptr<TensorSink>> TensorSink::Create(const TransferPlan& plan,
                                                               TensorMemory memory,
                                                               TensorFinished finished) {
  for (int i = 0; i < plan.manifest.tensors_size(); ++i) {
    if (const auto size = static_cast<int64_t>(memory(i).size()); size != plan.tensor_bytes[i]) {
      return absl::InternalError(absl::StrCat("tensor ", plan.manifest.tensors(i).name(),
                                              ": its memory has ", size, " bytes, expected ",
                                              plan.tensor_bytes[i]));
    }
  }
  auto sink = absl::WrapUnique(new TensorSink(plan, std::move(memory), std::move(finished)));
  sink->digests_ = StreamDigests(plan.manifest).digests();
  return sink;
}

absl::Status TensorSink::Unpack(int bucket, const at::Tensor& buffer) {
  const auto* bytes = static_cast<const std::byte*>(buffer.data_ptr());
  for (const auto& piece : plan_.buckets[bucket].pieces()) {
    std::memcpy(memory_(piece.tensor()).data() + piece.tensor_offset(),
                bytes + piece.bucket_offset(), piece.size_bytes());
  }
  return absl::OkStatus();
}

absl::Status TensorSink::Digest(int bucket) {
  for (const auto& piece : plan_.buckets[bucket].pieces()) {
    if (!plan_.EndsTensor(piece)) continue;
    digests_[piece.tensor()].set_digest(HexDigest(memory_(piece.tensor())));
    if (finished_ != nullptr) RETURN_IF_ERROR(finished_(piece.tensor()));
  }
  return absl::OkStatus();
}

}  // namespace tandem::weights
