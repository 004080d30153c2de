// RolloutMetrics: a replica's Prometheus metrics, under vLLM's names with the prefix tandem_, and
// the version of its weights. Collect() computes the values when they are scraped: add a metric of
// the engine there, from EngineInfo.
#ifndef TANDEM_SERVICES_ROLLOUT_REQUESTS_ROLLOUT_METRICS_H_
#define TANDEM_SERVICES_ROLLOUT_REQUESTS_ROLLOUT_METRICS_H_

#include <prometheus/collectable.h>
#include <prometheus/counter.h>
#include <prometheus/family.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "services/rollout/engine/engine.h"
#include "services/rollout/receive/rollout_owner.h"

namespace tandem::rollout {

// Thread-safe.
class RolloutMetrics final : public prometheus::Collectable {
 public:
  // `info` returns the engine's state as of its last step; cleared by Detach(). `owner` may be
  // null.
  explicit RolloutMetrics(std::function<EngineInfo()> info, const RolloutOwner* owner = nullptr);

  // Call before the engine is destroyed: omits the engine's metrics from then on.
  void Detach();

  std::vector<prometheus::MetricFamily> Collect() const override;

  // Measures one request's latencies and outcome, on behalf of its call. One thread at a time.
  class Request {
   public:
    explicit Request(RolloutMetrics* metrics) : metrics_(metrics), start_(absl::Now()) {}

    // Records new tokens of one sample; uses the chunk's `first`.
    void OnChunk(const SampleChunk& chunk);
    void OnDone(const absl::Status& status);

   private:
    RolloutMetrics* const metrics_;  // null: not measured
    const absl::Time start_;
    bool begun_ = false;
    std::map<int32_t, absl::Time> last_token_;  // by sample
  };

 private:
  prometheus::Counter& Finished(FinishReason reason);

  mutable absl::Mutex mu_;
  std::function<EngineInfo()> info_ ABSL_GUARDED_BY(mu_);
  const RolloutOwner* owner_ ABSL_GUARDED_BY(mu_);  // valid while info_ is set
  prometheus::Registry registry_;
  prometheus::Counter& prompt_tokens_;
  prometheus::Family<prometheus::Counter>& samples_;
  prometheus::Family<prometheus::Counter>& requests_;
  prometheus::Histogram& first_token_;
  prometheus::Histogram& inter_token_;
  prometheus::Histogram& end_to_end_;
};

}  // namespace tandem::rollout

#endif  // TANDEM_SERVICES_ROLLOUT_REQUESTS_ROLLOUT_METRICS_H_
