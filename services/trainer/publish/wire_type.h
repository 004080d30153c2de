// The element type of a manifest's tensors on the wire.
#ifndef TANDEM_SERVICES_TRAINER_PUBLISH_WIRE_TYPE_H_
#define TANDEM_SERVICES_TRAINER_PUBLISH_WIRE_TYPE_H_

#include <c10/core/ScalarType.h>

#include "absl/status/statusor.h"
#include "common/weights/manifest.h"
#include "common/weights/weight_runs.h"

namespace tandem::trainer {

// The type of all tensors, or of all that are not in float32: those travel as pairs of the other type's
// elements (RankShards). INVALID_ARGUMENT, naming the tensor, if more types are mixed or masters cannot be
// cast to them.
absl::StatusOr<at::ScalarType> WireType(const weights::Manifest& manifest);

// The wire element of a type that WireType() returns.
weights::WireElement WireElementOf(at::ScalarType type);

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_PUBLISH_WIRE_TYPE_H_
