// Compares a replica's tensors with the expected ones, by the digests that its ranks report for
// their parts.
#ifndef TANDEM_COMMON_WEIGHTS_COMPARE_DIGESTS_H_
#define TANDEM_COMMON_WEIGHTS_COMPARE_DIGESTS_H_

#include <google/protobuf/repeated_ptr_field.h>

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/weights/manifest.h"

namespace tandem::weights {

using DigestList = google::protobuf::RepeatedPtrField<TensorDigest>;

// One rank's report.
struct RankDigests {
  const Manifest* manifest = nullptr;  // with the rank's boxes
  const DigestList* digests = nullptr;
};

// A tensor that differs from the expected one.
struct DigestDifference {
  std::string tensor;
  int rank = 0;          // first rank known to be wrong; kAllRanks if unknown
  std::string expected;  // of the tensor, or of the part if copies of it differ
  std::string found;

  // The parts of several ranks do not add up.
  static constexpr int kAllRanks = -1;
};

// Returns one entry per differing tensor, in the order of `expected`, which are digests of complete
// tensors. Ranks that hold the same part must agree, and the parts must add up to the tensor.
// DATA_LOSS if a rank reports other tensors than expected, or a malformed digest.
absl::StatusOr<std::vector<DigestDifference>> CompareDigests(const DigestList& expected,
                                                             const std::vector<RankDigests>& ranks);

}  // namespace tandem::weights

#endif  // TANDEM_COMMON_WEIGHTS_COMPARE_DIGESTS_H_
