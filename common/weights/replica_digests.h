// What a replica holds, compared with what it should hold, tensor by tensor, by the digests that
// its ranks state of their parts.
#ifndef TANDEM_COMMON_WEIGHTS_REPLICA_DIGESTS_H_
#define TANDEM_COMMON_WEIGHTS_REPLICA_DIGESTS_H_

#include <google/protobuf/repeated_ptr_field.h>

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/weights/manifest.h"

namespace tandem::weights {

using DigestList = google::protobuf::RepeatedPtrField<TensorDigest>;

// What one rank of a replica states.
struct RankDigests {
  const Manifest* manifest = nullptr;  // with the rank's boxes
  const DigestList* digests = nullptr;
};

// A tensor that is not as expected.
struct DigestDifference {
  std::string tensor;
  int rank = 0;          // the first that is known to be wrong; kAllRanks where that cannot be told
  std::string expected;  // of the whole tensor, or of the part where a copy of it is wrong
  std::string found;

  // Parts of several ranks that do not add up.
  static constexpr int kAllRanks = -1;
};

// One for each tensor that differs, in the order of `expected`, which are digests of whole tensors:
// ranks that hold the same part must agree, and the parts add up to the tensor. DATA_LOSS where a
// rank states other tensors than are expected, or what is no digest.
absl::StatusOr<std::vector<DigestDifference>> CompareDigests(const DigestList& expected,
                                                             const std::vector<RankDigests>& ranks);

}  // namespace tandem::weights

#endif  // TANDEM_COMMON_WEIGHTS_REPLICA_DIGESTS_H_
