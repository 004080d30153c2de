#include "tools/tandem/reward/python_reward.h"

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "common/host/run_on_threads.h"
#include "common/status/status_macros.h"
#include "common/telemetry/log.h"

namespace tandem::reward {
namespace {

// Imports of large packages take longer than a call.
constexpr absl::Duration kLeastLoadTime = absl::Seconds(60);

nlohmann::json RequestOf(const PythonGroup& group, const std::string& prompt_key, size_t begin,
                         size_t end) {
  nlohmann::json completions = nlohmann::json::array();
  nlohmann::json ids = nlohmann::json::array();
  for (size_t i = begin; i < end; ++i) {
    completions.push_back(group.completions[i]);
    ids.push_back(group.completion_ids[i]);
  }
  return {{"prompt", group.prompt},
          {"prompt_key", prompt_key},
          {"prompt_ids", group.prompt_ids},
          {"answer", group.answer},
          {"row", group.row.is_object() ? group.row : nlohmann::json::object()},
          {"completions", std::move(completions)},
          {"completion_ids", std::move(ids)}};
}

bool EndsWorker(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status);
}

}  // namespace

absl::StatusOr<PythonReward::Worker> PythonReward::Start(const std::string& log_path) const {
  PythonFunction function = options_.function;
  function.log_path = log_path;
  return PythonWorker::Start(function, std::max(options_.timeout, kLeastLoadTime));
}

absl::Status PythonReward::Check() const { return Start(/*log_path=*/"").status(); }

absl::StatusOr<PythonReward::Worker> PythonReward::Take() {
  {
    absl::MutexLock lock(&mu_);
    const auto may_go_on = [this] {
      mu_.AssertHeld();
      return num_free_ > 0 || !error_.ok();
    };
    mu_.Await(absl::Condition(&may_go_on));
    RETURN_IF_ERROR(error_);
    --num_free_;
    while (!idle_.empty()) {
      Worker worker = std::move(idle_.back());
      idle_.pop_back();
      if (worker->running()) return worker;  // something may have killed it meanwhile
    }
  }
  const std::filesystem::path log = options_.function.log_path;
  std::error_code ignored;  // the worker's start reports a folder that is not there
  if (!log.empty()) std::filesystem::create_directories(log.parent_path(), ignored);
  absl::StatusOr<Worker> worker = Start(log.string());
  if (!worker.ok()) Return(nullptr);
  return worker;
}

void PythonReward::Return(Worker worker) {
  absl::MutexLock lock(&mu_);
  ++num_free_;
  if (worker != nullptr) idle_.push_back(std::move(worker));
}

absl::StatusOr<OptionalRewards> PythonReward::Call(const std::string& name,
                                                   const nlohmann::json& request,
                                                   Worker& worker) const {
  absl::StatusOr<OptionalRewards> rewards = worker->Call(request, options_.timeout);
  if (rewards.ok() || !EndsWorker(rewards.status())) return rewards;
  telemetry::LogWarning("reward worker restarts",
                        {{"judging", name}, {"cause", rewards.status().message()}});
  worker.reset();
  ASSIGN_OR_RETURN(worker, Start(options_.function.log_path));
  rewards = worker->Call(request, options_.timeout);
  if (!rewards.ok() && EndsWorker(rewards.status())) {
    return StatusBuilder(rewards.status()) << "so did a second call in a new process";
  }
  return rewards;
}

absl::StatusOr<OptionalRewards> PythonReward::ScoreGroup(const PythonGroup& group,
                                                         Worker& worker) const {
  const size_t count = group.completions.size();
  const size_t step = worker->scores_groups() ? count : 1;
  OptionalRewards out;
  for (size_t begin = 0; begin < count; begin += step) {
    ASSIGN_OR_RETURN(
        const OptionalRewards rewards,
        Call(group.name, RequestOf(group, options_.prompt_key, begin, begin + step), worker));
    if (rewards.size() != step) {
      return absl::DataLossError(
          absl::StrCat("reward: expected ", step, " rewards, found ", rewards.size()));
    }
    out.insert(out.end(), rewards.begin(), rewards.end());
  }
  return out;
}

absl::StatusOr<OptionalRewards> PythonReward::ScoreGroup(const PythonGroup& group) {
  ASSIGN_OR_RETURN(Worker worker, Take());
  absl::StatusOr<OptionalRewards> rewards = ScoreGroup(group, worker);
  if (!rewards.ok()) {
    rewards = absl::Status(rewards.status().code(),
                           absl::StrCat(group.name, ": ", rewards.status().message()));
    absl::MutexLock lock(&mu_);
    if (error_.ok()) error_ = rewards.status();
  }
  Return(std::move(worker));
  return rewards;
}

absl::StatusOr<std::vector<OptionalRewards>> PythonReward::Score(
    const std::vector<PythonGroup>& groups) {
  std::vector<absl::StatusOr<OptionalRewards>> results(groups.size(), OptionalRewards());
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    for (size_t i = next++; i < groups.size(); i = next++) results[i] = ScoreGroup(groups[i]);
  };
  const size_t num_threads = std::min(groups.size(), static_cast<size_t>(options_.max_workers));
  host::RunOnThreads(num_threads, work);
  std::vector<OptionalRewards> out;
  for (absl::StatusOr<OptionalRewards>& result : results) {
    RETURN_IF_ERROR(result.status());
    out.push_back(*std::move(result));
  }
  return out;
}

}  // namespace tandem::reward
