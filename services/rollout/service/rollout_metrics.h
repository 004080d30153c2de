// RolloutMetrics: what a replica does, for Prometheus, under vLLM's names with the prefix tandem_,
// and the version of its weights.
#ifndef TANDEM_SERVICES_ROLLOUT_SERVICE_ROLLOUT_METRICS_H_
#define TANDEM_SERVICES_ROLLOUT_SERVICE_ROLLOUT_METRICS_H_

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
  // `info` answers the engine's state as of its last step; empty once Detach() was called. `owner`
  // may be null.
  explicit RolloutMetrics(std::function<EngineInfo()> info, const RolloutOwner* owner = nullptr);

  // The engine is about to go: what depends on it is left out from now on.
  void Detach();

  std::vector<prometheus::MetricFamily> Collect() const override;

  // The latencies and ends of one request, told by the call that serves it. One thread at a time.
  class Request {
   public:
    explicit Request(RolloutMetrics* metrics) : metrics_(metrics), start_(absl::Now()) {}

    // Tokens have come, of one sample; `first` as in the chunk.
    void OnChunk(const SampleChunk& chunk);
    void OnDone(const absl::Status& status);

   private:
    RolloutMetrics* const metrics_;  // may be null: nothing is counted
    const absl::Time start_;
    bool begun_ = false;
    std::map<int32_t, absl::Time> last_token_;  // by sample
  };

 private:
  prometheus::Counter& Finished(FinishReason reason);

  mutable absl::Mutex mu_;
  std::function<EngineInfo()> info_ ABSL_GUARDED_BY(mu_);
  const RolloutOwner* owner_ ABSL_GUARDED_BY(mu_);  // while info_ is there
  prometheus::Registry registry_;
  prometheus::Counter& prompt_tokens_;
  prometheus::Family<prometheus::Counter>& samples_;
  prometheus::Family<prometheus::Counter>& requests_;
  prometheus::Histogram& first_token_;
  prometheus::Histogram& inter_token_;
  prometheus::Histogram& end_to_end_;
};

}  // namespace tandem::rollout

#endif  // TANDEM_SERVICES_ROLLOUT_SERVICE_ROLLOUT_METRICS_H_
