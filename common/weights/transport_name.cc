#include "common/weights/transport_name.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace tandem::weights {

std::string TransportName(common::v1::Transport transport) {
  if (!common::v1::Transport_IsValid(transport)) return absl::StrCat(static_cast<int>(transport));
  return absl::AsciiStrToLower(
      absl::StripPrefix(common::v1::Transport_Name(transport), "TRANSPORT_"));
}

}  // namespace tandem::weights
