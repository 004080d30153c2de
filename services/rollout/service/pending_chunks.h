// PendingChunks: tokens that wait for a reader, as one chunk for each sample.
#ifndef TANDEM_SERVICES_ROLLOUT_SERVICE_PENDING_CHUNKS_H_
#define TANDEM_SERVICES_ROLLOUT_SERVICE_PENDING_CHUNKS_H_

#include <cstdint>
#include <deque>
#include <map>
#include <utility>

#include "services/rollout/engine/generation.h"
#include "services/rollout/service/convert.h"

namespace tandem::rollout {

// However slowly it is read, memory is spent on tokens and not on messages. Not thread-safe.
class PendingChunks {
 public:
  void Add(SampleChunk chunk) {
    const auto [at, is_new] = pending_.try_emplace(chunk.index);
    if (is_new) {
      order_.push_back(chunk.index);
      at->second = std::move(chunk);
    } else {
      Merge(std::move(chunk), at->second);
    }
  }

  bool empty() const { return order_.empty(); }

  // The sample that has waited longest. Not of an empty one.
  SampleChunk Take() {
    const auto next = pending_.find(order_.front());
    order_.pop_front();
    SampleChunk chunk = std::move(next->second);
    pending_.erase(next);
    return chunk;
  }

 private:
  std::map<int32_t, SampleChunk> pending_;  // by sample
  std::deque<int32_t> order_;               // of the pending samples
};

}  // namespace tandem::rollout

#endif  // TANDEM_SERVICES_ROLLOUT_SERVICE_PENDING_CHUNKS_H_
