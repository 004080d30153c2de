// Digests of weights, which depend on every byte and its position.
//
// A tensor's digest is a sum over its wire bytes (additive_digest.h), so ranks that hold parts of
// it can be combined. A model's digest is xxh3-128 over its tensors' digests in manifest order.
#ifndef TANDEM_COMMON_WEIGHTS_DIGEST_H_
#define TANDEM_COMMON_WEIGHTS_DIGEST_H_

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

// What TensorDigest.digest holds. DATA_LOSS for anything else.
absl::StatusOr<DigestSum> ParseDigest(const std::string& hex);

// What a rank holds of a tensor, to be digested: `bytes` are those of its box, or of all of it.
DigestRun RunOfHeld(const common::v1::TensorEntry& tensor, absl::Span<const std::byte> bytes);
// Appends bytes [offset, offset + size) of the run's, in up to three runs of its slot: the rest of
// a row, whole rows, the beginning of one.
void AppendPart(const DigestRun& run, int64_t offset, int64_t size, std::vector<DigestRun>& parts);

// The digests of these, where they are on the host. AddHeld() adds `bytes`, from byte `offset` of
// the `held_bytes` that are held; CopyHeld() copies them to `to` and adds what it wrote
// (CopyRange(), or with `streams` StreamRange()).
void AddHeld(const common::v1::TensorEntry& tensor, int64_t held_bytes, int64_t offset,
             absl::Span<const std::byte> bytes, DigestSum& sum);
void CopyHeld(const common::v1::TensorEntry& tensor, int64_t held_bytes, int64_t offset,
              absl::Span<const std::byte> bytes, std::byte* to, DigestSum& sum,
              bool streams = false);
DigestSum SumOfHeld(const common::v1::TensorEntry& tensor, absl::Span<const std::byte> bytes);

common::v1::TensorDigest MakeTensorDigest(const common::v1::TensorEntry& tensor,
                                          const DigestSum& sum);

// One for each tensor of the manifest, in its order.
std::vector<common::v1::TensorDigest> MakeTensorDigests(const common::v1::Manifest& manifest,
                                                        const std::vector<DigestSum>& sums);

}  // namespace tandem::weights

#endif  // TANDEM_COMMON_WEIGHTS_DIGEST_H_
