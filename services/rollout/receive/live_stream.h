// LiveStream: the live weights as a sequence of WeightService.ReadWeights messages.
#ifndef TANDEM_SERVICES_ROLLOUT_RECEIVE_LIVE_STREAM_H_
#define TANDEM_SERVICES_ROLLOUT_RECEIVE_LIVE_STREAM_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/hash/hasher.h"
#include "services/rollout/receive/weight_store.h"
#include "tandem/rollout/v1/weight_service.pb.h"

namespace tandem::rollout {

inline constexpr int64_t kStreamMessageBytes = int64_t{1} << 20;

// A position in the canonical stream of a store's manifest, without the tensors that the reader
// keeps, and the running digest of the bucket. Holds no weights, so a reader costs one message,
// whatever the bucket size.
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
  // A tensor's place in the stream.
  struct Part {
    int tensor = 0;
    int64_t begin = 0;
    int64_t end = 0;
  };

  LiveStream(const WeightStore& store, int64_t version, int64_t bucket_bytes,
             std::vector<Part> parts)
      : store_(store), version_(version), bucket_bytes_(bucket_bytes), parts_(std::move(parts)) {}

  static absl::StatusOr<std::vector<Part>> PartsOf(const WeightStore& store,
                                                   const v1::ReadWeightsRequest& request);
  int64_t total_bytes() const { return parts_.back().end; }
  absl::Status Copy(int64_t from, int64_t size, char* to) const;

  const WeightStore& store_;
  const int64_t version_;
  const int64_t bucket_bytes_;
  const std::vector<Part> parts_;  // not empty
  int64_t position_ = 0;
  hash::Hasher bucket_digest_;
};

}  // namespace tandem::rollout

#endif  // TANDEM_SERVICES_ROLLOUT_RECEIVE_LIVE_STREAM_H_
