// TrainerMetrics: the trainer's Prometheus metrics: steps, the values of the last one, and weight
// updates by phase. Kept by the leader.
#ifndef TANDEM_SERVICES_TRAINER_SERVICE_TRAINER_METRICS_H_
#define TANDEM_SERVICES_TRAINER_SERVICE_TRAINER_METRICS_H_

#include <prometheus/collectable.h>
#include <prometheus/counter.h>
#include <prometheus/family.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <map>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "services/trainer/service/driver_lease.h"
#include "services/trainer/service/trainer_status.h"
#include "tandem/trainer/v1/trainer_service.pb.h"

namespace tandem::trainer {

// Thread-safe. Reads the status and the lease until Detach(); call that before they are destroyed.
class TrainerMetrics final : public prometheus::Collectable {
 public:
  explicit TrainerMetrics(const TrainerStatus* status);
  void Detach();
  // Exports the lease's counters.
  void WatchLease(const DriverLease* lease);

  // Records the result and the duration of a step, or of a weight update.
  void OnStep(const absl::StatusOr<v1::TrainStepResponse>& response, double seconds);
  void OnUpdate(const absl::StatusOr<v1::PublishWeightsResponse>& response, double seconds);

  std::vector<prometheus::MetricFamily> Collect() const override;

 private:
  prometheus::Registry registry_;
  prometheus::Family<prometheus::Histogram>& steps_;    // by status code
  prometheus::Family<prometheus::Histogram>& updates_;  // by status code
  prometheus::Family<prometheus::Counter>& phases_;
  prometheus::Counter& bytes_;
  prometheus::Counter& sent_bytes_;
  prometheus::Gauge& changed_share_;
  prometheus::Family<prometheus::Histogram>& pauses_;
  prometheus::Family<prometheus::Counter>& replicas_;

  mutable absl::Mutex mu_;
  const TrainerStatus* status_ ABSL_GUARDED_BY(mu_);
  const DriverLease* lease_ ABSL_GUARDED_BY(mu_) = nullptr;
  std::map<std::string, double> last_step_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_SERVICE_TRAINER_METRICS_H_
