#include "tools/tandem/driver/rollout_fleet.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/rpc/channel.h"
#include "common/rpc/policy_version.h"
#include "common/rpc/status_conversion.h"
#include "common/status/status_macros.h"
#include "tandem/common/v1/error.pb.h"
#include "tools/tandem/driver/fleet_job.h"
#include "tools/tandem/driver/generate_call.h"
#include "tools/tandem/driver/poll_interval.h"

namespace tandem::driver {
namespace {

// Pause before retrying a replica that refused a request for lack of room.
constexpr absl::Duration kRetryPause = absl::Milliseconds(500);

// Whether the replica, not the request, is at fault, so that another, or this one later, may
// succeed.
bool IsReplicaFailure(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsCancelled(status) || absl::IsAborted(status);
}

// If replicas may change: a new one has no weights yet, or no room, and may succeed later.
bool MayBeRetried(const absl::Status& status) {
  return IsReplicaFailure(status) || absl::IsFailedPrecondition(status) ||
         absl::IsResourceExhausted(status);
}

// Whether the replica serves another trainer's weights, or did while it responded.
bool IsForeign(const absl::Status& status) {
  const auto info = rpc::GetDetail<common::v1::ErrorInfo>(status);
  return info.has_value() && info->reason() == "FOREIGN_WEIGHTS";
}

}  // namespace

class RolloutFleet::Run {
 public:
  absl::Mutex mu;
  Group group ABSL_GUARDED_BY(mu);
  absl::Status error ABSL_GUARDED_BY(mu);
  int num_open ABSL_GUARDED_BY(mu) = 0;
  std::vector<std::shared_ptr<Job>> jobs;  // written before the first begins
  std::function<void(absl::StatusOr<Group>)> done;
};

RolloutFleet::RolloutFleet(std::vector<Replica> replicas, Options options)
    : options_(std::move(options)), membership_(options_.membership) {
  {
    absl::MutexLock lock(&mu_);
    membership_.SetMembers(replicas, absl::Now());
  }
  OnChange();
  if (!options_.replicas_may_change) return;
  FleetMonitor::Options monitor;
  monitor.poll_timeout = options_.poll_timeout;
  monitor.tick = [this] { Tick(); };
  monitor.due = [this] {
    absl::MutexLock lock(&mu_);
    return membership_.DuePolls(absl::Now());
  };
  monitor.incarnation = [this] {
    absl::MutexLock lock(&mu_);
    return trainer_incarnation_;
  };
  monitor.answered = [this](const FleetMembership::Poll& poll,
                            absl::StatusOr<rollout::v1::GetServerInfoResponse> answer) {
    if (answer.ok()) {
      const absl::Status in_range = rpc::CheckReportedVersion(
          poll.address.id, answer->policy_version(), rpc::NoVersion::kAllowed);
      if (!in_range.ok()) answer = in_range;
    }
    {
      absl::MutexLock lock(&mu_);
      if (answer.ok()) {
        membership_.OnAnswer(poll, *answer, absl::Now());
      } else {
        membership_.OnSilence(poll, answer.status(), absl::Now());
      }
    }
    OnChange();
  };
  monitor_ = std::make_unique<FleetMonitor>(std::move(monitor));
}

RolloutFleet::~RolloutFleet() {
  monitor_.reset();
  EndHeartbeats();
  std::vector<std::shared_ptr<Job>> waiting;
  {
    absl::MutexLock lock(&mu_);
    waiting.swap(waiting_);
    for (const auto& job : jobs_) {
      job->is_cancelled = true;
      if (job->context != nullptr) job->context->TryCancel();
    }
  }
  for (const auto& job : waiting) Finish(job, absl::CancelledError("the driver is stopping"));
  // Each call is cancelled, and has a deadline.
  absl::MutexLock lock(&mu_);
  const auto all_done = [this] {
    mu_.AssertHeld();
    return jobs_.empty();
  };
  mu_.Await(absl::Condition(&all_done));
}

bool RolloutFleet::StreamsResponses() const {
  // Streamed tokens survive the loss of their replica. If it was the only one, the run ends and
  // they are of no use.
  return options_.replicas_may_change || links_.size() > 1;
}

std::shared_ptr<RolloutFleet::Run> RolloutFleet::Start(
    const Prompt& prompt, int64_t place, const GenerateOptions& options,
    std::function<void(absl::StatusOr<Group>)> done) {
  auto run = std::make_shared<Run>();
  run->done = std::move(done);
  const absl::Time deadline = absl::Now() + options_.request_timeout;
  std::vector<std::string> images;
  for (const PromptImage& image : prompt.images) {
    absl::StatusOr<std::string> file = ReadImageFile(image);
    if (!file.ok()) {
      run->done(file.status());
      return run;
    }
    images.push_back(*std::move(file));
  }
  std::vector<const rollout::v1::SamplingParams*> kinds = {&options.sampling};
  if (options.baseline.has_value()) kinds.push_back(&*options.baseline);
  for (const rollout::v1::SamplingParams* params : kinds) {
    const bool is_baseline = params != &options.sampling;
    rollout::v1::GenerateRequest request;
    if (prompt.token_ids.empty() && !prompt.text.empty()) {
      request.set_text(prompt.text);
    } else {
      request.mutable_token_ids()->mutable_ids()->Add(prompt.token_ids.begin(),
                                                      prompt.token_ids.end());
    }
    for (const std::string& image : images) request.add_images()->set_data(image);
    *request.mutable_sampling() = *params;
    if (!params->has_n()) request.mutable_sampling()->set_n(1);
    if (params->has_seed()) {
      request.mutable_sampling()->set_seed(params->seed() * 0x9E3779B97F4A7C15ULL +
                                           static_cast<uint64_t>(place) + 1);
    }
    request.set_return_text(options.return_text);
    request.set_return_routed_experts(options.return_routed_experts && !is_baseline);
    {
      absl::MutexLock lock(&mu_);
      request.set_stream(StreamsResponses());
      request.set_incarnation(trainer_incarnation_);
    }
    auto job = std::make_shared<Job>(std::move(request));
    job->deadline = deadline;
    job->on_tokens = options.on_tokens;
    job->preferred = options.replica;
    job->done = [run, is_baseline](absl::Status status, PartialGroup& partial) {
      absl::StatusOr<Group> outcome = Group{};
      {
        absl::MutexLock lock(&run->mu);
        if (!status.ok()) {
          if (run->error.ok()) run->error = std::move(status);
        } else if (is_baseline) {
          run->group.baseline = std::move(partial.Take()[0]);
        } else {
          run->group.completions = partial.Take();
        }
        if (--run->num_open > 0) return;
        if (run->error.ok()) {
          outcome = std::move(run->group);
        } else {
          outcome = run->error;
        }
      }
      run->done(std::move(outcome));
    };
    run->jobs.push_back(std::move(job));
  }
  {
    absl::MutexLock lock(&run->mu);
    run->num_open = static_cast<int>(run->jobs.size());
  }
  {
    absl::MutexLock lock(&mu_);
    jobs_.insert(run->jobs.begin(), run->jobs.end());
  }
  for (const auto& job : run->jobs) Place(job);
  return run;
}

void RolloutFleet::Cancel(Run& run) {
  std::vector<std::shared_ptr<Job>> waited;
  {
    absl::MutexLock lock(&mu_);
    for (const auto& job : run.jobs) {
      job->is_cancelled = true;
      if (job->context != nullptr) job->context->TryCancel();
      if (std::erase(waiting_, job) > 0) waited.push_back(job);
    }
  }
  for (const auto& job : waited)
    Finish(job, absl::CancelledError("the request is no longer needed"));
}

std::shared_ptr<RolloutFleet::Link> RolloutFleet::Pick(const Job& job) {
  return Pick(job.failed_on, job.preferred);
}

std::shared_ptr<RolloutFleet::Link> RolloutFleet::Pick(const std::set<std::string>& failed_on,
                                                       const std::string& preferred) {
  std::shared_ptr<Link> best;
  for (const auto& [id, link] : links_) {
    const FleetMembership::Replica* replica = membership_.Find(id);
    if (replica == nullptr) continue;
    const bool is_ready =
        options_.replicas_may_change ? replica->takes_requests() : !failed_on.contains(id);
    if (!is_ready) continue;
    if (id == preferred) return link;
    if (best == nullptr || link->outstanding_tokens < best->outstanding_tokens) best = link;
  }
  return best;
}

void RolloutFleet::Place(const std::shared_ptr<Job>& job) {
  rollout::v1::RolloutService::Stub* stub = nullptr;  // of the job's link, which outlives the call
  absl::Status end;
  {
    absl::MutexLock lock(&mu_);
    std::shared_ptr<Link> link;
    const absl::Time now = absl::Now();
    if (is_aborting_) {
      job->group.Abort();
    } else if (job->is_cancelled) {
      end = absl::CancelledError("the request is no longer needed");
    } else if (now >= job->deadline) {
      end = absl::DeadlineExceededError(
          absl::StrCat("no replica completed the group in time; ", DescribeReplicas(),
                       job->last_error.ok() ? "" : "; the last error: ",
                       job->last_error.ok() ? "" : job->last_error.message()));
    } else if (now >= job->not_before) {
      link = Pick(*job);
      if (link == nullptr && !options_.replicas_may_change) {
        end = job->last_error.ok() ? absl::UnavailableError("no rollout is available")
                                   : job->last_error;
      }
    }
    const bool ends = is_aborting_ || !end.ok();
    if (!ends && link == nullptr) {
      waiting_.push_back(job);
      return;
    }
    if (link != nullptr) {
      job->link = link;
      job->context = rpc::MakeContext(job->deadline - now);
      job->cost = job->group.cost();
      link->outstanding_tokens += job->cost;
      link->jobs.insert(job.get());
      stub = link->stub.get();
    }
  }
  if (stub == nullptr) {
    Finish(job, std::move(end));
    return;
  }
  GenerateCall::Start(*stub, *job->context, job->group, job->on_tokens,
                      [this, job](absl::Status status) { OnCallDone(job, std::move(status)); });
}

void RolloutFleet::OnCallDone(const std::shared_ptr<Job>& job, absl::Status status) {
  bool retries = false;
  {
    absl::MutexLock lock(&mu_);
    const std::shared_ptr<Link> link = std::exchange(job->link, nullptr);
    link->outstanding_tokens -= job->cost;
    link->jobs.erase(job.get());
    job->context.reset();
    const std::string& id = link->replica.id;
    if (job->is_cancelled) {
      status = absl::CancelledError("the request is no longer needed");
    } else if (status.ok()) {
      job->group.SetReplica(id);
      retries = job->group.aborted() && !is_aborting_;
    } else {
      if (IsForeign(status)) ++foreign_answers_;
      status = absl::Status(
          status.code(),
          absl::StrCat("rollout ", id, " at ", link->replica.address, ": ", status.message()));
      const absl::Time now = absl::Now();
      retries = options_.replicas_may_change ? MayBeRetried(status) : IsReplicaFailure(status);
      job->last_error = status;
      job->failed_on.insert(id);
      if (retries && absl::IsResourceExhausted(status)) {
        job->not_before = now + kRetryPause;
      } else if (retries) {
        membership_.Suspect(id, status, now);
      }
    }
    if (retries && !is_aborting_) {
      ++retried_requests_;
      kept_tokens_ += job->group.num_partial_tokens();
    }
  }
  if (retries) {
    if (monitor_ != nullptr) monitor_->Wake();
    Place(job);
  } else {
    Finish(job, std::move(status));
  }
}

void RolloutFleet::Finish(const std::shared_ptr<Job>& job, absl::Status status) {
  const auto done = std::exchange(job->done, nullptr);
  done(std::move(status), job->group);
  absl::MutexLock lock(&mu_);
  jobs_.erase(job);
}

absl::StatusOr<std::vector<Group>> RolloutFleet::Generate(std::vector<Prompt> prompts,
                                                          const GenerateOptions& options) {
  // The runs hold it too, for their last callback may outlast this function.
  struct Inbox {
    absl::Mutex mu;
    std::vector<std::pair<size_t, absl::StatusOr<Group>>> ended ABSL_GUARDED_BY(mu);
  };
  auto inbox = std::make_shared<Inbox>();
  std::vector<std::shared_ptr<Run>> runs;
  for (size_t i = 0; i < prompts.size(); ++i) {
    const auto place = static_cast<int64_t>(i);
    runs.push_back(Start(prompts[i], place, options, [inbox, i](absl::StatusOr<Group> group) {
      absl::MutexLock lock(&inbox->mu);
      inbox->ended.emplace_back(i, std::move(group));
    }));
  }
  std::vector<Group> groups(prompts.size());
  absl::Status first_error;
  const auto fail = [&](absl::Status error) {
    if (!first_error.ok()) return;
    first_error = std::move(error);
    for (const auto& run : runs) Cancel(*run);
  };
  for (size_t num_done = 0; num_done < prompts.size();) {
    std::vector<std::pair<size_t, absl::StatusOr<Group>>> batch;
    {
      // Every run has a deadline, so this loop ends.
      absl::MutexLock lock(&inbox->mu);
      inbox->mu.AwaitWithTimeout(
          absl::Condition(
              +[](decltype(Inbox::ended)* ended) { return !ended->empty(); }, &inbox->ended),
          kPollInterval);
      batch.swap(inbox->ended);
    }
    if (batch.empty() && options.while_waiting) {
      if (absl::Status status = options.while_waiting(); !status.ok()) fail(std::move(status));
    }
    for (auto& [index, group] : batch) {
      ++num_done;
      if (!group.ok()) {
        fail(group.status());
        continue;
      }
      groups[index] = *std::move(group);
    }
  }
  RETURN_IF_ERROR(first_error);
  for (size_t i = 0; i < prompts.size(); ++i) groups[i].prompt = std::move(prompts[i]);
  return groups;
}

void RolloutFleet::AbortAll() {
  std::vector<std::shared_ptr<Job>> waited;
  std::vector<std::shared_ptr<Link>> links;
  {
    absl::MutexLock lock(&mu_);
    is_aborting_ = true;
    waited.swap(waiting_);
    for (const auto& [id, link] : links_) {
      const FleetMembership::Replica* replica = membership_.Find(id);
      if (replica != nullptr && replica->state != ReplicaState::kLost) links.push_back(link);
    }
  }
  for (const auto& job : waited) Place(job);
  for (const auto& link : links) {
    auto context = rpc::MakeContext(absl::Seconds(2));
    rollout::v1::AbortRequest request;
    request.set_all(true);
    rollout::v1::AbortResponse response;
    // A replica that can't be reached has nothing left to abort.
    link->stub->Abort(context.get(), request, &response).error_code();
  }
}

}  // namespace tandem::driver
