// The experts of a segment's tokens as they stand in run_dir/rollouts: the bytes of
// Segment.routed_experts, compressed by zstd, in base64. Most bytes are 0 and neighbours alike, so that
// the text is about half as long as the bytes.
//
//   line["routed_experts"] = ExpertsText(segment_bytes);
//   ASSIGN_OR_RETURN(const std::string bytes, ExpertsOfText(text));
#ifndef TANDEM_TOOLS_TANDEM_DRIVER_EXPERTS_TEXT_H_
#define TANDEM_TOOLS_TANDEM_DRIVER_EXPERTS_TEXT_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tandem::driver {

std::string ExpertsText(absl::string_view bytes);

// INVALID_ARGUMENT: no base64, no zstd frame that states its size, or more than
// model::kMaxRoutedBytes.
absl::StatusOr<std::string> ExpertsOfText(absl::string_view text);

}  // namespace tandem::driver

#endif  // TANDEM_TOOLS_TANDEM_DRIVER_EXPERTS_TEXT_H_
