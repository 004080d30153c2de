// PendingChunks: tokens waiting for a reader, merged into one chunk per sample.
#ifndef TANDEM_SERVICES_ROLLOUT_REQUESTS_PENDING_CHUNKS_H_
#define TANDEM_SERVICES_ROLLOUT_REQUESTS_PENDING_CHUNKS_H_

#include <cstdint>
#include <deque>
#include <map>
#include <utility>

#include "services/rollout/engine/generation.h"
#include "services/rollout/requests/convert.h"

namespace tandem::rollout {

// A slow reader costs memory only for tokens, not for messages. Not thread-safe.
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

  // Takes the chunk of the sample that has waited longest. Must not be empty.
  SampleChunk Take() {
    const auto next = pending_.find(order_.front());
    order_.pop_front();
    SampleChunk chunk = std::move(next->second);
    pending_.erase(next);
    return chunk;
  }

 private:
  std::map<int32_t, SampleChunk> pending_;  // by sample
  std::deque<int32_t> order_;               // pending samples, oldest first
};

}  // namespace tandem::rollout

#endif  // TANDEM_SERVICES_ROLLOUT_REQUESTS_PENDING_CHUNKS_H_
