// Digests of weights. They depend on every byte and its position.
//
// A tensor's digest is a sum over its wire bytes (additive_digest.h), so digests of the parts that
// ranks hold can be combined. A model's digest is xxh3-128 over its tensors' digests in manifest
// order.
#ifndef TANDEM_COMMON_WEIGHTS_TENSOR_DIGESTS_H_
#define TANDEM_COMMON_WEIGHTS_TENSOR_DIGESTS_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/weights/additive_digest.h"
#include "common/weights/weight_runs.h"
#include "tandem/common/v1/weights.pb.h"

namespace tandem::weights {

std::string ModelDigest(const std::vector<common::v1::TensorDigest>& digests);

// Parses TensorDigest.digest. DATA_LOSS if malformed.
absl::StatusOr<DigestSum> ParseDigest(const std::string& hex);

// Returns the digest run for a rank's part of a tensor: `bytes` are those of its box, or of the
// whole tensor if it has no box.
DigestRun RunOfHeld(const common::v1::TensorEntry& tensor, absl::Span<const std::byte> bytes);
// Appends bytes [offset, offset + size) of `run` as up to three runs of its slot: the rest of a
// row, full rows, the beginning of a row.
void AppendPart(const DigestRun& run, int64_t offset, int64_t size, std::vector<DigestRun>& parts);

// The same for parts on the host. AddHeld() adds `bytes`, which start at byte `offset` of the
// `held_bytes` of the rank's part; CopyHeld() also copies them to `to` and digests what it copied
// (CopyRange(), or StreamRange() if `streams`).
void AddHeld(const common::v1::TensorEntry& tensor, int64_t held_bytes, int64_t offset,
             absl::Span<const std::byte> bytes, DigestSum& sum);
void CopyHeld(const common::v1::TensorEntry& tensor, int64_t held_bytes, int64_t offset,
              absl::Span<const std::byte> bytes, std::byte* to, DigestSum& sum,
              bool streams = false);
DigestSum SumOfHeld(const common::v1::TensorEntry& tensor, absl::Span<const std::byte> bytes);

common::v1::TensorDigest MakeTensorDigest(const common::v1::TensorEntry& tensor,
                                          const DigestSum& sum);

// One digest per tensor, in manifest order.
std::vector<common::v1::TensorDigest> MakeTensorDigests(const common::v1::Manifest& manifest,
                                                        const std::vector<DigestSum>& sums);

}  // namespace tandem::weights

#endif  // TANDEM_COMMON_WEIGHTS_TENSOR_DIGESTS_H_
