#include "services/rollout/service/rank_threads.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/host/control_group.h"
#include "common/host/cpu_list.h"
#include "common/status/status_macros.h"

namespace tandem::rollout {
namespace {

// This rank's share of the CPUs that `text` names.
absl::StatusOr<std::vector<int>> CpusOfRank(const std::string& text, int64_t rank, int64_t ranks) {
  if (text.empty()) return std::vector<int>();
  const std::vector<int> allowed = host::AllowedCpus();
  std::vector<int> cpus = allowed;
  if (text != "auto") {
    ASSIGN_OR_RETURN(cpus, host::ParseCpuList(text));
  }
  for (const int cpu : cpus) {
    if (std::find(allowed.begin(), allowed.end(), cpu) != allowed.end()) continue;
    return absl::InvalidArgumentError(absl::StrCat("this process may only use CPUs ",
                                                   host::FormatCpuList(allowed), ", not on ", cpu));
  }
  std::vector<int> share = host::ShareOfCpus(cpus, rank, rank + 1, ranks);
  if (share.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(ranks, " ranks share the CPUs ",
                                                   host::FormatCpuList(cpus),
                                                   "; each rank needs at least one"));
  }
  return share;
}

}  // namespace

absl::StatusOr<std::vector<int>> SetThreads(const config::v1::RolloutConfig& rollout,
                                            const comm::LaunchEnvironment& environment) {
  const bool shares = rollout.tensor_model_parallel_size() > 1;
  const int64_t ranks = shares ? std::max(1, environment.local_world_size) : 1;
  const int64_t rank = shares ? environment.local_rank : 0;
  const auto given = CpusOfRank(rollout.cpus(), rank, ranks);
  RETURN_IF_ERROR(given.status()) << "rollout.cpus";
  const auto num_cpus = static_cast<int64_t>(given->size());
  int64_t threads = rollout.threads();
  if (threads == 0) threads = given->empty() ? host::UsableCores() / ranks : num_cpus;
  threads = std::max<int64_t>(1, threads);
  if (!given->empty() && num_cpus < threads) {
    return absl::InvalidArgumentError(absl::StrCat(
        "rollout.cpus: rank ", rank, " of ", ranks, " has CPUs ", host::FormatCpuList(*given),
        " for ", threads,
        " threads, and each thread needs its own; name more CPUs, or lower rollout.threads"));
  }
  at::set_num_threads(static_cast<int>(threads));
  return given;
}

}  // namespace tandem::rollout
