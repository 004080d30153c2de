#include "tools/tandem/plan/memory_budget.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/config/summary.h"
#include "common/text/count.h"
#include "tools/tandem/plan/ceil_divide.h"

namespace tandem::plan {
namespace {

std::string TooLargeForRollout(const config::v1::RunConfig& config, const RolloutMemory& rollout,
                               int64_t available, const char* of_what) {
  return absl::StrCat("rollout.tensor_model_parallel_size: a rollout rank needs ",
                      FormatBytes(rollout.total()), " (two copies of the weights ",
                      FormatBytes(rollout.weights + rollout.packed), ", KV cache ",
                      FormatBytes(rollout.kv_cache), ", the rest ",
                      FormatBytes(rollout.transfer + rollout.temporaries), "), but ", of_what,
                      " has ", FormatBytes(available), "; use more than ",
                      text::Count(config.rollout().tensor_model_parallel_size(), "rank"),
                      " or lower rollout.kv_cache_megabytes");
}

// Why no memory is left for a trainer rank's tensors. Each rank is a process, which takes
// hardware.reserved_bytes before the first one.
std::string NoRoomForTensors(const config::v1::RunConfig& config, const Hardware& hardware,
                             const RolloutMemory& rollout, const MemoryBudget& budget,
                             int64_t ranks_here) {
  const std::string process = FormatBytes(hardware.reserved_bytes);
  if (const int64_t stated = config.trainer().memory_megabytes(); stated > 0) {
    return absl::StrCat("trainer.memory_megabytes: a trainer rank needs more than ",
                        FormatBytes(stated << 20), ": its process takes ", process,
                        " before any tensor");
  }
  if (hardware.is_gpu) {
    return absl::StrCat("rollout.kv_cache_megabytes: a trainer rank shares an accelerator of ",
                        FormatBytes(hardware.memory_bytes), " with a rollout rank, which takes ",
                        FormatBytes(rollout.total()), " and leaves no room for the rank's tensors",
                        "; lower it or use more accelerators");
  }
  const std::string rollouts =
      budget.rollouts_beside == 0
          ? ""
          : absl::StrCat(" and ", text::Count(budget.rollouts_beside, "rollout rank"));
  return absl::StrCat(
      "trainer.ranks: a trainer rank needs ", process, " for its process before any tensor, but ",
      text::Count(ranks_here, "trainer rank"), rollouts, " share ",
      FormatBytes(hardware.memory_bytes), ", which leaves ",
      FormatBytes(std::max<int64_t>(0, budget.rank_bytes + hardware.reserved_bytes)), " for ",
      ranks_here == 1 ? "it" : "each trainer rank", "; use fewer ranks or more machines");
}

}  // namespace

std::string FormatBytes(int64_t bytes) {
  const double value = static_cast<double>(bytes);
  if (bytes >= int64_t{1} << 30) return absl::StrFormat("%.1f GiB", value / (1 << 30));
  return absl::StrFormat("%.1f MiB", value / (1 << 20));
}

std::string WithPlace(const config::Places& places, const std::string& message) {
  const auto place = places.find(message.substr(0, message.find(": ")));
  return place == places.end() ? message : absl::StrCat(place->second, ": ", message);
}

MemoryBudget BudgetOf(const config::v1::RunConfig& config, const Hardware& hardware,
                      const RolloutMemory& rollout, bool with_rollouts) {
  const int64_t ranks = config.trainer().ranks();
  const int64_t rollout_ranks =
      with_rollouts ? config.rollout().replicas() * config.rollout().tensor_model_parallel_size()
                    : 0;
  MemoryBudget budget;
  budget.process_bytes = hardware.reserved_bytes;
  if (hardware.is_gpu) {
    const int64_t total = hardware.total();
    const int64_t most = hardware.memory_bytes - hardware.reserved_bytes;
    if (ranks > total) {
      budget.problem = absl::StrCat("trainer.ranks: ", text::Count(ranks, "rank"), " on ",
                                    text::Count(total, "accelerator"), "; each rank needs its own");
      return budget;
    }
    if (rollout_ranks > total) {
      budget.problem =
          absl::StrCat("rollout.replicas: ", text::Count(rollout_ranks, "rollout rank"), " on ",
                       text::Count(total, "accelerator"), "; each rollout rank needs its own");
      return budget;
    }
    budget.shared = rollout_ranks > 0 && ranks + rollout_ranks > total;
    budget.rollouts_beside = budget.shared ? 1 : 0;
    budget.rank_bytes = most;
    if (with_rollouts) {
      budget.rollout_bytes = most;
      if (rollout.total() > most) {
        budget.problem = TooLargeForRollout(config, rollout, most, "an accelerator");
      }
      // The other process also has a context and communicators.
      if (budget.shared) budget.rank_bytes -= rollout.total() + hardware.reserved_bytes / 2;
    }
  } else {
    const int64_t ranks_here = CeilDivide(ranks, hardware.hosts);
    budget.rollouts_beside = CeilDivide(rollout_ranks, hardware.hosts);
    budget.shared = budget.rollouts_beside > 0;
    const int64_t rollouts_take =
        budget.rollouts_beside * (rollout.total() + hardware.reserved_bytes);
    budget.rank_bytes =
        (hardware.memory_bytes - rollouts_take) / ranks_here - hardware.reserved_bytes;
    if (with_rollouts) {
      budget.rollout_bytes = rollout.total();
      if (rollouts_take > hardware.memory_bytes) {
        budget.problem = TooLargeForRollout(
            config, rollout, hardware.memory_bytes / std::max<int64_t>(1, budget.rollouts_beside),
            "its share of a host");
      }
    }
  }
  if (const int64_t stated = config.trainer().memory_megabytes(); stated > 0) {
    budget.rank_bytes = (stated << 20) - hardware.reserved_bytes;
  }
  if (budget.problem.empty() && budget.rank_bytes <= 0) {
    budget.problem = NoRoomForTensors(config, hardware, rollout, budget,
                                      CeilDivide(ranks, std::max(1, hardware.hosts)));
  }
  if (with_rollouts && budget.problem.empty() && rollout.sequences == 0) {
    budget.problem = absl::StrCat(
        "rollout.kv_cache_megabytes: ", rollout.kv_cache >> 20,
        " MiB cannot hold one sequence of data.max_prompt_length + ",
        config::LongestCompletionKey(config), " = ",
        config.data().max_prompt_length() + config::LongestCompletion(config), " tokens");
  }
  return budget;
}

}  // namespace tandem::plan
