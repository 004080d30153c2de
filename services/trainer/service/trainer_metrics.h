// TrainerMetrics: what the trainer does, for Prometheus: steps, the values of the last one, and
// weight updates by phase. Kept by the leader.
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

// Thread-safe. The status and the lease are asked while the trainer lives: Detach() before they go.
class TrainerMetrics final : public prometheus::Collectable {
 public:
  explicit TrainerMetrics(const TrainerStatus* status);
  void Detach();
  // Shows what the lease has counted.
  void WatchLease(const DriverLease* lease);

  // What became of a step, and how long it took.
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
