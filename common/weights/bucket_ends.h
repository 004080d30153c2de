// The two ends of what carries an update's buckets: a BucketSource has the bytes, a BucketSink
// takes them. Both know the plan, so nothing but bytes travels. Two buffers alternate on either
// side: while one is on the wire, the other is filled or emptied.
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

// Where the leader gets the bytes of a bucket from.
class BucketSource {
 public:
  virtual ~BucketSource() = default;
  // Begins to fill `buffer` (uint8, the bucket's size), which stays with the source until Finish().
  // At most two buckets are under way. Time spent packing is added to `times`.
  virtual absl::Status Start(int bucket, at::Tensor buffer, PhaseTimes& times) = 0;
  // Returns when the bucket's bytes are in its buffer. In the order of Start().
  virtual absl::Status Finish(int bucket) = 0;
};

// Where a receiver puts the bytes of a bucket.
class BucketSink {
 public:
  virtual ~BucketSink() = default;
  // Fills the buffer with the bytes that the update's base has in the bucket's place, where there
  // is a base.
  virtual absl::Status Collect(int bucket, at::Tensor buffer) = 0;
  // Where the bytes of a span of the bucket belong, if that is one range of memory; else empty.
  // A transport may write to it: what is there is undefined until Digest().
  virtual absl::Span<std::byte> Place(int bucket, const BucketSpan& span) = 0;
  // Copies the span's bytes from the bucket's buffer to where they belong, unless its taker has.
  virtual absl::Status Unpack(int bucket, const BucketSpan& span, const at::Tensor& buffer) = 0;
  // Puts a span's bytes where they belong as they arrive, and digests them while they are in the
  // core's cache. Where the span has no place they are received into the bucket's buffer, which
  // with `keeps` is to hold them too. Null where the sink does that later. Valid until the bucket's
  // Digest(), which comes after the message's end.
  virtual comm::MessageTaker* Taker(int /*bucket*/, const BucketSpan& /*span*/, bool /*keeps*/) {
    return nullptr;
  }
  // What takers have spent so far.
  virtual PhaseTimes::Clock::duration taken_time() const { return {}; }
  // After all spans of the bucket are in their places, once a bucket: digests there what no taker
  // has.
  virtual absl::Status Digest(int bucket) = 0;
};

}  // namespace tandem::weights

#endif  // TANDEM_COMMON_WEIGHTS_BUCKET_ENDS_H_
