#include "services/trainer/service/trainer_metrics.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/metrics/metric_family.h"

namespace tandem::trainer {
namespace {

// Seconds.
const prometheus::Histogram::BucketBoundaries kStepSeconds = {0.05, 0.1, 0.25, 0.5, 1,   2.5, 5,
                                                              10,   30,  60,   120, 300, 600};
const prometheus::Histogram::BucketBoundaries kUpdateSeconds = {
    0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120};
const prometheus::Histogram::BucketBoundaries kPauseSeconds = {0.00001, 0.0001, 0.001, 0.005, 0.01,
                                                               0.05,    0.1,    0.5,   1,     5};

template <typename T>
std::string CodeOf(const absl::StatusOr<T>& result) {
  return result.ok() ? "ok"
                     : absl::AsciiStrToLower(absl::StatusCodeToString(result.status().code()));
}

// TRAINER_STATE_READY -> "ready"
std::string NameOf(v1::TrainerState state) {
  return absl::AsciiStrToLower(absl::StripPrefix(v1::TrainerState_Name(state), "TRAINER_STATE_"));
}

std::vector<std::string> StateNames() {
  std::vector<std::string> out;
  for (int i = v1::TrainerState_MIN + 1; i <= v1::TrainerState_MAX; ++i) {
    if (v1::TrainerState_IsValid(i)) out.push_back(NameOf(static_cast<v1::TrainerState>(i)));
  }
  return out;
}

prometheus::Family<prometheus::Histogram>& Histograms(prometheus::Registry& registry,
                                                      const std::string& name,
                                                      const std::string& help) {
  return prometheus::BuildHistogram().Name(name).Help(help).Register(registry);
}

prometheus::Family<prometheus::Counter>& Counters(prometheus::Registry& registry,
                                                  const std::string& name,
                                                  const std::string& help) {
  return prometheus::BuildCounter().Name(name).Help(help).Register(registry);
}

}  // namespace

TrainerMetrics::TrainerMetrics(const TrainerStatus* status)
    : steps_(Histograms(registry_, "tandem_train_step_seconds",
                        "Duration of training steps, by status code.")),
      updates_(Histograms(
          registry_, "tandem_weight_update_seconds",
          "Duration of weight updates, from the call to the last commit, by status code.")),
      phases_(Counters(registry_, "tandem_weight_update_phase_seconds_total",
                       "Exposed time of weight updates, by phase.")),
      bytes_(Counters(registry_, "tandem_weight_update_bytes_total",
                      "Bytes of the published model, counted once per update.")
                 .Add({})),
      sent_bytes_(Counters(registry_, "tandem_weight_update_sent_bytes_total",
                           "Bytes that the trainer's ranks sent for weight updates.")
                      .Add({})),
      changed_share_(
          prometheus::BuildGauge()
              .Name("tandem_weight_update_changed_ratio")
              .Help("Share of the elements that the last update changed; 1 if it was not a delta.")
              .Register(registry_)
              .Add({})),
      pauses_(Histograms(registry_, "tandem_weight_update_pause_seconds",
                         "Pause of a replica's scheduler during a commit.")),
      replicas_(Counters(registry_, "tandem_weight_update_replicas_total",
                         "Replicas updated, by outcome.")),
      status_(status) {
  steps_.Add({{"code", "ok"}}, kStepSeconds);
  updates_.Add({{"code", "ok"}}, kUpdateSeconds);
  pauses_.Add({}, kPauseSeconds);
  replicas_.Add({{"outcome", "committed"}});
  replicas_.Add({{"outcome", "failed"}});
}

void TrainerMetrics::Detach() {
  absl::MutexLock lock(&mu_);
  status_ = nullptr;
  lease_ = nullptr;
}

void TrainerMetrics::WatchLease(const DriverLease* lease) {
  absl::MutexLock lock(&mu_);
  lease_ = lease;
}

void TrainerMetrics::OnStep(const absl::StatusOr<v1::TrainStepResponse>& response, double seconds) {
  steps_.Add({{"code", CodeOf(response)}}, kStepSeconds).Observe(seconds);
  if (!response.ok()) return;
  absl::MutexLock lock(&mu_);
  last_step_ = {response->metrics().begin(), response->metrics().end()};
}

void TrainerMetrics::OnUpdate(const absl::StatusOr<v1::PublishWeightsResponse>& response,
                              double seconds) {
  updates_.Add({{"code", CodeOf(response)}}, kUpdateSeconds).Observe(seconds);
  if (!response.ok()) return;
  for (const auto& phase : response->phases()) {
    phases_.Add({{"phase", phase.phase()}}).Increment(phase.exposed());
  }
  bytes_.Increment(static_cast<double>(response->size_bytes()));
  sent_bytes_.Increment(static_cast<double>(response->sent_bytes()));
  changed_share_.Set(response->has_changed_share() ? response->changed_share() : 1);
  for (const v1::ReplicaResult& replica : response->replicas()) {
    replicas_.Add({{"outcome", replica.committed() ? "committed" : "failed"}}).Increment();
    if (replica.committed()) pauses_.Add({}, kPauseSeconds).Observe(replica.pause_seconds());
  }
}

std::vector<prometheus::MetricFamily> TrainerMetrics::Collect() const {
  std::vector<prometheus::MetricFamily> out = registry_.Collect();
  absl::MutexLock lock(&mu_);
  auto last = metrics::EmptyFamily("tandem_train_step_value",
                                   "Values of the last step, under the names of metrics.jsonl.",
                                   prometheus::MetricType::Gauge);
  for (const auto& [name, value] : last_step_) metrics::AddGauge(last, value, {{"name", name}});
  out.push_back(std::move(last));
  if (status_ == nullptr) return out;
  const v1::WatchResponse now = status_->Get();
  out.push_back(metrics::GaugeFamily("tandem_policy_version", "Policy version.",
                                     static_cast<double>(now.policy_version())));
  out.push_back(metrics::CounterFamily("tandem_train_steps_total",
                                       "Training steps since the start of the run.",
                                       static_cast<double>(now.step())));
  if (lease_ != nullptr) {
    out.push_back(
        metrics::CounterFamily("tandem_lease_take_overs_total",
                               "Times that a driver took over the trainer from another driver.",
                               static_cast<double>(lease_->num_take_overs())));
    out.push_back(
        metrics::CounterFamily("tandem_lease_refused_calls_total",
                               "Calls refused because the caller does not hold the lease.",
                               static_cast<double>(lease_->num_refused())));
  }
  out.push_back(metrics::StateFamily("tandem_trainer_state", "1 for the present state.",
                                     StateNames(), NameOf(now.state())));
  return out;
}

}  // namespace tandem::trainer
