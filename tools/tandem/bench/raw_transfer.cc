#include "tools/tandem/bench/raw_transfer.h"

#include <fstream>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/net/reserved_port.h"
#include "common/rpc/child_process.h"
#include "common/status/status_macros.h"
#include "tools/tandem/commands/session.h"
#include "tools/tandem/driver/local_cluster.h"

namespace tandem::bench {

absl::StatusOr<double> MeasureRawTransfer(const RawTransfer& transfer) {
  const commands::ScratchFolder scratch;
  const std::string result_path = scratch.path() + "/seconds";
  ASSIGN_OR_RETURN(const int port, net::ReservePort());
  std::vector<std::unique_ptr<rpc::ChildProcess>> workers;
  for (int rank = 0; rank < transfer.trainer_ranks + transfer.rollouts; ++rank) {
    rpc::ChildProcessOptions options;
    options.name = absl::StrCat("raw transfer rank ", rank);
    options.argv = {driver::BinaryFolder() + "/tandem-bench-raw",
                    absl::StrCat(rank),
                    absl::StrCat(transfer.trainer_ranks),
                    absl::StrCat(transfer.rollouts),
                    absl::StrCat(transfer.size_bytes),
                    absl::StrCat(transfer.bucket_bytes),
                    absl::StrCat(port),
                    result_path,
                    transfer.chain ? "1" : "0",
                    transfer.backend,
                    transfer.encrypted ? "1" : "0"};
    ASSIGN_OR_RETURN(workers.emplace_back(), rpc::ChildProcess::Start(std::move(options)));
  }
  for (auto& worker : workers) {
    if (!worker->Wait(absl::Minutes(2))) {
      return absl::DeadlineExceededError(absl::StrCat(worker->name(), " did not finish in time"));
    }
    RETURN_IF_ERROR(worker->ExitStatus()) << worker->name();
  }
  double seconds = 0;
  if (!(std::ifstream(result_path) >> seconds)) {
    return absl::InternalError("the raw transfer wrote no result");
  }
  return seconds;
}

}  // namespace tandem::bench
