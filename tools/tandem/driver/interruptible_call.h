// A blocking call that an interrupt ends.
#ifndef TANDEM_TOOLS_TANDEM_DRIVER_INTERRUPTIBLE_CALL_H_
#define TANDEM_TOOLS_TANDEM_DRIVER_INTERRUPTIBLE_CALL_H_

#include <grpcpp/client_context.h>
#include <grpcpp/support/status.h>

#include <functional>
#include <optional>

#include "absl/status/status.h"

namespace tandem::driver {

// Makes the call, which uses `context` and has a deadline, on a thread of its own. Returns how it ended,
// or nullopt, soon, if `interrupted`, which may be null, becomes true before.
std::optional<absl::Status> CallInterruptibly(grpc::ClientContext& context,
                                              const std::function<grpc::Status()>& call,
                                              const std::function<bool()>& interrupted);

}  // namespace tandem::driver

#endif  // TANDEM_TOOLS_TANDEM_DRIVER_INTERRUPTIBLE_CALL_H_
