#include "common/rpc/grpc_log.h"

#include <grpc/support/log.h>

#include <cstdlib>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/host/memory_limit.h"
#include "common/telemetry/log.h"

namespace tandem::rpc {
namespace {

// gRPC aborts the process if it cannot start a thread: print its last message.
bool IsLastWord(const gpr_log_func_args& line) {
  return line.severity == GPR_LOG_SEVERITY_ERROR &&
         (absl::StrContains(line.message, "assertion failed") ||
          absl::StrContains(line.message, "pthread_create"));
}

void WriteGrpcLine(gpr_log_func_args* line) {
  if (IsLastWord(*line)) {
    telemetry::LogError("gRPC aborts", {{"at", absl::StrCat(line->file, ":", line->line)},
                                        {"message", line->message},
                                        {"memory", host::DescribeMemoryLimits()}});
    return;
  }
  telemetry::LogDebug("grpc", {{"severity", gpr_log_severity_string(line->severity)},
                               {"at", absl::StrCat(line->file, ":", line->line)},
                               {"message", line->message}});
}

}  // namespace

void RouteGrpcLog() {
  static const bool done = [] {
    if (std::getenv("GRPC_VERBOSITY") != nullptr || std::getenv("GRPC_TRACE") != nullptr)
      return false;
    gpr_set_log_function(WriteGrpcLine);
    return true;
  }();
  (void)done;
}

}  // namespace tandem::rpc
