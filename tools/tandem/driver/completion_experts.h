// The experts of a completion's tokens, as bytes like Segment.routed_experts; all are empty if the
// rollouts do not return them.
#ifndef TANDEM_TOOLS_TANDEM_DRIVER_COMPLETION_EXPERTS_H_
#define TANDEM_TOOLS_TANDEM_DRIVER_COMPLETION_EXPERTS_H_

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"
#include "tools/tandem/driver/completion.h"

namespace tandem::driver {

// 0 if none are known: the first response of a sample tells those of its prompt.
size_t BytesPerToken(const Completion& completion);

// Makes them as long as the tokens; what is missing is unknown.
void FillUp(Completion& completion);

// Replaces unknown experts of `experts`, from byte `first` on, by `known` ones of the same tokens, which
// were computed again.
void FillUnknown(absl::string_view known, size_t bytes_per_token, size_t first,
                 std::string& experts);

}  // namespace tandem::driver

#endif  // TANDEM_TOOLS_TANDEM_DRIVER_COMPLETION_EXPERTS_H_
