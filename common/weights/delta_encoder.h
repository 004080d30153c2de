// DeltaEncoder: codes a message's delta for sending. The CPU codes: on a device, both versions come
// to the host through page-locked memory, and the delta goes back.
//
//   DeltaEncoder encoder(ops, /*element_bytes=*/2, largest_message_bytes);
//   ASSIGN_OR_RETURN(DeltaStats stats, encoder.Encode(base, next, out));
//   Send(out.size);    // first: the peer then posts a receive of exactly so many bytes
//   Send(out.coded.narrow(0, 0, stats.coded_bytes));
//
// Threads: one at a time. Errors: those of the ops and of EncodeDelta().
#ifndef TANDEM_COMMON_WEIGHTS_DELTA_ENCODER_H_
#define TANDEM_COMMON_WEIGHTS_DELTA_ENCODER_H_

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "absl/status/statusor.h"
#include "common/weights/delta_codec.h"
#include "common/weights/device_ops.h"

namespace tandem::weights {

// A delta in memory of the sender's ops. Its buffer is reused by the next Encode() into it, so
// finish the sends first.
struct EncodedDelta {
  at::Tensor coded;  // bytes; the first DeltaStats::coded_bytes count
  at::Tensor size;   // guarded: the number of these
  at::Tensor next;   // the bytes that were encoded, in host memory; valid until the next Encode()
};

class DeltaEncoder {
 public:
  // `ops` outlives the encoder; no message is larger than `largest_bytes`.
  DeltaEncoder(DeviceOps& ops, int64_t element_bytes, int64_t largest_bytes)
      : ops_(ops), element_bytes_(static_cast<int>(element_bytes)), largest_bytes_(largest_bytes) {}

  // Encodes the change from `base`, in host memory or that of the ops, to `next`, in that of the
  // ops. Both are bytes, equally many.
  absl::StatusOr<DeltaStats> Encode(const at::Tensor& base, const at::Tensor& next,
                                    EncodedDelta& out);

 private:
  // Copies bytes of a device to the host.
  absl::StatusOr<at::Tensor> ToHost(const at::Tensor& bytes, at::Tensor& buffer);

  DeviceOps& ops_;
  const int element_bytes_;
  const int64_t largest_bytes_;
  // For a device only.
  at::Tensor host_base_, host_next_, host_coded_;
};

}  // namespace tandem::weights

#endif  // TANDEM_COMMON_WEIGHTS_DELTA_ENCODER_H_
