#include "common/weights/transport.h"

#include "absl/strings/str_cat.h"
#include "common/weights/broadcast_transport.h"

namespace tandem::weights {

absl::StatusOr<std::unique_ptr<Transport>> MakeTransport(absl::string_view name) {
  if (name == "broadcast") return std::make_unique<BroadcastTransport>();
  return absl::InvalidArgumentError(
      absl::StrCat("transport: expected broadcast, found '", name, "'"));
}

}  // namespace tandem::weights
