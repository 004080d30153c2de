#include "common/rpc/exit_deadline.h"

#include <cstdio>
#include <cstdlib>
#include <system_error>

#include "common/telemetry/log.h"

namespace tandem::rpc {

ExitDeadline::ExitDeadline(absl::Duration after) {
  try {
    thread_ = std::thread([this, after] {
      if (ended_.WaitForNotificationWithTimeout(after)) return;
      telemetry::LogError("the process does not end by itself",
                          {{"after", absl::FormatDuration(after)}});
      std::fflush(nullptr);
      std::_Exit(EXIT_FAILURE);
    });
  } catch (const std::system_error& error) {
    telemetry::LogWarning("no thread for the deadline of the process's end",
                          {{"error", error.what()}});
  }
}

ExitDeadline::~ExitDeadline() {
  ended_.Notify();
  if (thread_.joinable()) thread_.join();
}

TerminationDeadline::TerminationDeadline(TerminationSignal& termination, absl::Duration after)
    : deadline_(std::make_shared<std::unique_ptr<ExitDeadline>>()) {
  termination.OnSignal(
      [deadline = deadline_, after] { *deadline = std::make_unique<ExitDeadline>(after); });
}

}  // namespace tandem::rpc
