// LiveStream: the live weights as a sequence of WeightService.ReadWeights messages.
#ifndef TANDEM_SERVICES_ROLLOUT_RECEIVE_LIVE_STREAM_H_
#define TANDEM_SERVICES_ROLLOUT_RECEIVE_LIVE_STREAM_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "common/hash/hasher.h"
#include "services/rollout/receive/weight_store.h"
#include "tandem/rollout/v1/weight_service.pb.h"

namespace tandem::rollout {

inline constexpr int64_t kStreamMessageBytes = int64_t{1} << 20;

// A position in the canonical stream of a store's manifest, and the running digest of the bucket.
// Holds no weights, so a reader costs one message, whatever the bucket size.
class LiveStream {
 public:
  // Starts at the request's first bucket. Any thread. Errors: those of ReadWeights in
  // weight_service.proto.
  static absl::StatusOr<std::unique_ptr<LiveStream>> Open(const WeightStore& store,
                                                          const v1::ReadWeightsRequest& request);

  // Copies the next bytes into the message; returns false, copying nothing, after the last. Call on
  // the receiver's thread. ABORTED if the version is no longer live.
  absl::StatusOr<bool> Next(v1::ReadWeightsResponse& message);

 private:
  LiveStream(const WeightStore& store, int64_t version, int64_t bucket_bytes)
      : store_(store), version_(version), bucket_bytes_(bucket_bytes) {}

  absl::Status Copy(int64_t from, int64_t size, char* to) const;

  const WeightStore& store_;
  const int64_t version_;
  const int64_t bucket_bytes_;
  std::vector<int64_t> ends_;  // end of each tensor in the stream
  int64_t position_ = 0;
  hash::Hasher bucket_digest_;
};

}  // namespace tandem::rollout

#endif  // TANDEM_SERVICES_ROLLOUT_RECEIVE_LIVE_STREAM_H_
