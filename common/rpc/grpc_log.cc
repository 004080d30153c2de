#include "common/rpc/grpc_log.h"

#include <grpc/support/log.h>

#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "common/telemetry/log.h"

namespace tandem::rpc {
namespace {

void WriteGrpcLine(gpr_log_func_args* line) {
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
