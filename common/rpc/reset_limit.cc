#include "common/rpc/reset_limit.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <system_error>

#include "absl/strings/numbers.h"
#include "common/rpc/peer_endpoint.h"

namespace tandem::rpc {
double ResetLimit::Level(const Bucket& bucket, absl::Time now) const {
  const double leaked = burst_ * absl::FDivDuration(now - bucket.at, interval_);
  return std::max(0.0, bucket.resets - std::max(0.0, leaked));
}

bool ResetLimit::Exceeds(const std::string& peer, absl::Time now) {
  absl::MutexLock lock(&mu_);
  // A full bucket is empty after an interval: those that are, say nothing any more.
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

int EndConnections(absl::string_view peer, const std::vector<int>& ports) {
  const std::optional<PeerEndpoint> wanted = PeerEndpoint::Parse(peer);
  if (!wanted.has_value()) return 0;
  int num_ended = 0;
  std::error_code error;
  for (auto it = std::filesystem::directory_iterator("/proc/self/fd", error);
       !error && it != std::filesystem::directory_iterator(); it.increment(error)) {
    int number = -1;
    if (!absl::SimpleAtoi(it->path().filename().string(), &number)) continue;
    if (EndConnection(number, *wanted, ports)) ++num_ended;
  }
  return num_ended;
}

}  // namespace tandem::rpc
