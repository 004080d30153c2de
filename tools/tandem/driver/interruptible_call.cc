#include "tools/tandem/driver/interruptible_call.h"

#include <future>

#include "absl/time/time.h"
#include "common/rpc/status_conversion.h"
#include "tools/tandem/driver/poll_interval.h"

namespace tandem::driver {

std::optional<absl::Status> CallInterruptibly(grpc::ClientContext& context,
                                              const std::function<grpc::Status()>& call,
                                              const std::function<bool()>& interrupted) {
  auto running = std::async(std::launch::async, call);
  // The call has a deadline, so this loop ends.
  while (running.wait_for(absl::ToChronoMilliseconds(kPollInterval)) != std::future_status::ready) {
    if (interrupted == nullptr || !interrupted()) continue;
    context.TryCancel();
    running.wait();
    return std::nullopt;
  }
  return rpc::FromGrpcStatus(running.get());
}

}  // namespace tandem::driver
