// Manifests: how both sides of a weight update describe their tensors before bytes travel.
//
//   ASSIGN_OR_RETURN(Manifest mine, MakeManifest(table, io::DType::kBF16));
//   RETURN_IF_ERROR(CheckManifest(theirs));    // validates a peer's sizes, names and digest
//   // FAILED_PRECONDITION with UnloadedParams if tensors differ.
//   RETURN_IF_ERROR(CheckSameTensors(mine, theirs));
#ifndef TANDEM_COMMON_WEIGHTS_MANIFEST_H_
#define TANDEM_COMMON_WEIGHTS_MANIFEST_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/io/dtype.h"
#include "common/model/parameter_table.h"
#include "tandem/common/v1/error.pb.h"
#include "tandem/common/v1/weights.pb.h"

namespace tandem::weights {

using common::v1::Bucket;
using common::v1::Manifest;
using common::v1::TensorDigest;
using common::v1::TensorEntry;

// Above any real model; CheckManifest() rejects larger claims before anything is allocated.
inline constexpr int kMaxTensors = 1 << 20;
inline constexpr int64_t kMaxModelBytes = int64_t{1} << 46;

// Lists the table's tensors in canonical order with their wire type: kF32, kBF16 or kF16.
absl::StatusOr<Manifest> MakeManifest(const model::ParameterTable& table, io::DType wire_dtype);

// xxh3-128 in hex over names, shapes, types and placements.
std::string ManifestDigest(const Manifest& manifest);

// Bytes of a tensor on the wire. INVALID_ARGUMENT, naming the tensor, if the type is unknown, a
// dimension is negative, or the size exceeds kMaxModelBytes.
absl::StatusOr<int64_t> TensorBytes(const TensorEntry& tensor);

// Bytes of all tensors. Errors: those of CheckManifest().
absl::StatusOr<int64_t> ManifestBytes(const Manifest& manifest);

// INVALID_ARGUMENT for an invalid manifest: empty or duplicate names, sizes out of range, a digest
// that does not match the contents.
absl::Status CheckManifest(const Manifest& manifest);

// Returns the tensors that `offered` lacks, adds, or describes differently from `expected`.
common::v1::UnloadedParams CompareManifests(const Manifest& expected, const Manifest& offered);

// OK if both list the same tensors in the same order; else FAILED_PRECONDITION with UnloadedParams.
absl::Status CheckSameTensors(const Manifest& expected, const Manifest& offered);

}  // namespace tandem::weights

#endif  // TANDEM_COMMON_WEIGHTS_MANIFEST_H_
