#include "tools/tandem/bench/device_transfer.h"

#include <fstream>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/io/atomic_file.h"
#include "common/net/reserved_port.h"
#include "common/rpc/child_process.h"
#include "common/status/status_macros.h"
#include "tools/tandem/commands/session.h"
#include "tools/tandem/driver/local_cluster.h"

namespace tandem::bench {

absl::StatusOr<nlohmann::json> MeasureDeviceTransfer(const DeviceTransfer& transfer) {
  const commands::ScratchFolder scratch;
  const std::string manifest_path = scratch.path() + "/manifest";
  const std::string result_path = scratch.path() + "/result.json";
  RETURN_IF_ERROR(io::WriteFileAtomically(manifest_path, transfer.manifest.SerializeAsString()));
  ASSIGN_OR_RETURN(const int port, net::ReservePort());
  std::vector<std::unique_ptr<rpc::ChildProcess>> workers;
  for (int rank = 0; rank <= transfer.rollouts; ++rank) {
    rpc::ChildProcessOptions options;
    options.name = absl::StrCat("device transfer rank ", rank);
    options.argv = {driver::BinaryFolder() + "/tandem-bench-device",
                    absl::StrCat(rank),
                    absl::StrCat(transfer.rollouts + 1),
                    transfer.device,
                    transfer.backend,
                    manifest_path,
                    absl::StrCat(transfer.bucket_bytes),
                    absl::StrCat(transfer.repeats),
                    absl::StrCat(port),
                    result_path};
    ASSIGN_OR_RETURN(workers.emplace_back(), rpc::ChildProcess::Start(std::move(options)));
  }
  for (auto& worker : workers) {
    if (!worker->Wait(absl::Minutes(5))) {
      return absl::DeadlineExceededError(absl::StrCat(worker->name(), " did not finish in time"));
    }
    RETURN_IF_ERROR(worker->ExitStatus()) << worker->name();
  }
  std::ifstream file(result_path);
  nlohmann::json result = nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (!result.is_object()) return absl::InternalError("the device transfer wrote no result");
  return result;
}

}  // namespace tandem::bench
