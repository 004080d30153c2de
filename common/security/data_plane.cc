#include "common/security/data_plane.h"

#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"

namespace tandem::security {
namespace {

struct OfProcess {
  absl::Mutex mu;
  DataPlaneSecurity plane ABSL_GUARDED_BY(mu);
};

OfProcess& TheProcess() {
  static auto* process = new OfProcess;
  return *process;
}

}  // namespace

absl::string_view DataPlaneEncryptionName(DataPlaneEncryption encryption) {
  switch (encryption) {
    case DataPlaneEncryption::kBetweenHosts:
      return "between hosts";
    case DataPlaneEncryption::kAlways:
      return "always";
    default:
      return "never";
  }
}

absl::StatusOr<DataPlaneSecurity> ResolveDataPlane(absl::string_view word, bool has_tls,
                                                   bool allow_plaintext_nccl) {
  DataPlaneSecurity plane;
  plane.allow_plaintext_nccl = allow_plaintext_nccl;
  plane.source = absl::StrCat("--data-plane-encryption ", word, ", TLS ", has_tls ? "on" : "off");
  if (word == "always") {
    plane.encryption = DataPlaneEncryption::kAlways;
  } else if (word == "auto") {
    plane.encryption = has_tls ? DataPlaneEncryption::kBetweenHosts : DataPlaneEncryption::kNever;
  } else if (word != "never") {
    return absl::InvalidArgumentError(
        absl::StrCat("--data-plane-encryption (TANDEM_DATA_PLANE_ENCRYPTION): expected auto, "
                     "always or never, found '",
                     word, "'"));
  }
  return plane;
}

DataPlaneSecurity DataPlaneOfProcess() {
  OfProcess& process = TheProcess();
  absl::MutexLock lock(&process.mu);
  return process.plane;
}

void SetDataPlaneOfProcess(DataPlaneSecurity plane) {
  OfProcess& process = TheProcess();
  absl::MutexLock lock(&process.mu);
  process.plane = std::move(plane);
}

}  // namespace tandem::security
