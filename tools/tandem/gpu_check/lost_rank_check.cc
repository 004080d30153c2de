// Two ranks exchange tensors until one of them kills itself. The other has to get an error by its
// deadline, and to end.
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/net/reserved_port.h"
#include "common/rpc/child_process.h"
#include "tools/tandem/gpu_check/checks.h"

namespace tandem::gpu_check {

CheckResult LoseRank(const Tools& tools, const std::string& device, const std::string& backend,
                     absl::Time deadline) {
  const absl::StatusOr<int> port = net::ReservePort();
  if (!port.ok()) return Failed(std::string(port.status().message()));
  const auto args = [&](int rank) -> std::vector<std::string> {
    const std::string own = device == "cpu" ? device : absl::StrCat(device, ":", rank);
    return {"lost-rank", "--device",         own,      "--backend",        backend,
            "--rank",    absl::StrCat(rank), "--port", absl::StrCat(*port)};
  };
  rpc::ChildProcessOptions doomed;
  doomed.name = "the rank that is killed";
  doomed.argv = args(1);
  doomed.argv.insert(doomed.argv.begin(), tools.bin + "/tandem-check-device");
  doomed.log_path = tools.folder + "/lost_rank_1.log";
  const auto victim = rpc::ChildProcess::Start(std::move(doomed));
  if (!victim.ok()) return Failed(std::string(victim.status().message()));
  const ChildOutput output = tools.RunDevice("lost_rank_0", args(0), deadline);
  if (!output.status.ok()) return Failed(std::string(output.status.message()));
  if (output.objects.empty()) return Failed("the rank that stayed noticed nothing");
  CheckResult result;
  result.measured = output.objects.back();
  result.measured["backend"] = backend;
  result.measured["other_rank"] = (*victim)->ExitDescription();
  result.summary = absl::StrFormat("noticed after %.1f s (%s)",
                                   result.measured.value("seconds_to_notice", 0.0), backend);
  if ((*victim)->Wait(absl::ZeroDuration()) &&
      result.measured["other_rank"].get<std::string>().find("SIGKILL") == std::string::npos) {
    result.Fail(absl::StrCat("rank 1 should have been killed, but ",
                             result.measured["other_rank"].get<std::string>()));
  }
  return result;
}

CheckResult CheckLostRank(const Tools& tools, const Machine& machine, absl::Time deadline) {
  if (machine.facts.gpus.size() < 2) {
    return Skipped("needs two GPUs, of which NCCL gives one to each rank; this machine shows one");
  }
  return LoseRank(tools, "cuda", "nccl", deadline);
}

}  // namespace tandem::gpu_check
