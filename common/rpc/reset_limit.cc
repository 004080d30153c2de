#include "common/rpc/reset_limit.h"

#include <algorithm>

namespace tandem::rpc {
double ResetLimit::Level(const Bucket& bucket, absl::Time now) const {
  const double leaked = burst_ * absl::FDivDuration(now - bucket.at, interval_);
  return std::max(0.0, bucket.resets - std::max(0.0, leaked));
}

bool ResetLimit::Exceeds(const std::string& peer, absl::Time now) {
  absl::MutexLock lock(&mu_);
  // A full bucket drains within an interval; empty buckets carry no information.
  if (now >= next_sweep_) {
    absl::erase_if(buckets_, [&](const auto& entry) { return Level(entry.second, now) == 0; });
    next_sweep_ = now + interval_;
  }
  Bucket& bucket = buckets_[peer];
  bucket = {Level(bucket, now) + 1, now};
  if (bucket.resets <= burst_) return false;
  buckets_.erase(peer);
  return true;
}

size_t ResetLimit::size() const {
  absl::MutexLock lock(&mu_);
  return buckets_.size();
}

}  // namespace tandem::rpc
