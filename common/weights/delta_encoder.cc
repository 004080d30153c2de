#include "common/weights/delta_encoder.h"

#include "common/comm/guarded_words.h"
#include "common/status/status_macros.h"
#include "common/weights/tensor_bytes.h"

namespace tandem::weights {

absl::StatusOr<at::Tensor> DeltaEncoder::ToHost(const at::Tensor& bytes, at::Tensor& buffer) {
  RETURN_IF_ERROR(ProvideOnHost(ops_, largest_bytes_, buffer));
  const at::Tensor copy = buffer.narrow(0, 0, bytes.numel());
  RETURN_IF_ERROR(ops_.Transfer(bytes, copy));
  return copy;
}

absl::StatusOr<DeltaStats> DeltaEncoder::Encode(const at::Tensor& base, const at::Tensor& next,
                                                EncodedDelta& out) {
  const int64_t room = MaxEncodedBytes(largest_bytes_);
  RETURN_IF_ERROR(Provide(ops_, room, out.coded));
  if (!ops_.on_host()) RETURN_IF_ERROR(ProvideOnHost(ops_, room, host_coded_));
  at::Tensor before = base;
  if (!base.is_cpu()) {
    ASSIGN_OR_RETURN(before, ToHost(base, host_base_));
  }
  out.next = next;
  if (!ops_.on_host()) {
    ASSIGN_OR_RETURN(out.next, ToHost(next, host_next_));
  }
  ASSIGN_OR_RETURN(const DeltaStats stats,
                   EncodeDelta(BytesOf(before), BytesOf(out.next), element_bytes_,
                               BytesOf(ops_.on_host() ? out.coded : host_coded_)));
  const at::Tensor words = comm::GuardWords<1>({stats.coded_bytes});
  out.size = words;
  if (ops_.on_host()) return stats;
  RETURN_IF_ERROR(ops_.Transfer(host_coded_.narrow(0, 0, stats.coded_bytes),
                                out.coded.narrow(0, 0, stats.coded_bytes)));
  ASSIGN_OR_RETURN(const at::Tensor size, ops_.Buffer(static_cast<int64_t>(words.nbytes())));
  out.size = size.view(at::kLong);
  RETURN_IF_ERROR(ops_.Transfer(words, out.size));
  return stats;
}

}  // namespace tandem::weights
