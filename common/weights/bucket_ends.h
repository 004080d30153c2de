// The two ends of a bucket transport: a BucketSource provides the bytes, a BucketSink stores them.
// Both know the plan, so only payload bytes travel. Each side double-buffers: while one buffer is
// on the wire, the other is filled or emptied.
#ifndef TANDEM_COMMON_WEIGHTS_BUCKET_ENDS_H_
#define TANDEM_COMMON_WEIGHTS_BUCKET_ENDS_H_

#include <ATen/core/Tensor.h>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/comm/message_taker.h"
#include "common/weights/bucket_plan.h"
#include "common/weights/phase_times.h"
#include "common/weights/receive_table.h"

namespace tandem::weights {

// Provides the bytes of each bucket on the leader.
class BucketSource {
 public:
  virtual ~BucketSource() = default;
  // Starts to fill `buffer` (uint8, the bucket's size), which the source owns until Finish(). At
  // most two buckets are in flight. Adds the packing time to `times`.
  virtual absl::Status Start(int bucket, at::Tensor buffer, PhaseTimes& times) = 0;
  // Blocks until the bucket's bytes are in its buffer. Call in the order of Start().
  virtual absl::Status Finish(int bucket) = 0;
};

// Stores the bytes of each bucket on a receiver.
class BucketSink {
 public:
  virtual ~BucketSink() = default;
  // Fills the buffer with the bucket's bytes of the update's base version. Only for updates that
  // have a base.
  virtual absl::Status Collect(int bucket, at::Tensor buffer) = 0;
  // Returns the destination of a bucket's span if it is one memory range; else empty. A transport
  // may write to it; the contents are undefined until Digest().
  virtual absl::Span<std::byte> Place(int bucket, const BucketSpan& span) = 0;
  // Copies the span's bytes from the bucket's buffer to their destination, unless the span's taker
  // did.
  virtual absl::Status Unpack(int bucket, const BucketSpan& span, const at::Tensor& buffer) = 0;
  // Returns a taker that stores a span's bytes as they arrive and digests them while they are in
  // the core's cache. A span without a Place() is received into the bucket's buffer, which must
  // hold its bytes too if `keeps`. Null if the sink does this later. Valid until the bucket's
  // Digest(), which comes after the message's end.
  virtual comm::MessageTaker* Taker(int /*bucket*/, const BucketSpan& /*span*/, bool /*keeps*/) {
    return nullptr;
  }
  // Time that takers have spent so far.
  virtual PhaseTimes::Clock::duration taken_time() const { return {}; }
  // Call once per bucket, after all its spans are in place. Digests what no taker has.
  virtual absl::Status Digest(int bucket) = 0;
};

}  // namespace tandem::weights

#endif  // TANDEM_COMMON_WEIGHTS_BUCKET_ENDS_H_
