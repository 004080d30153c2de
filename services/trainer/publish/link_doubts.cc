#include "services/trainer/publish/link_doubts.h"

#include <algorithm>

namespace tandem::trainer {

void LinkDoubts::BeginUpdate() {
  for (auto& [id, doubt] : doubts_) {
    doubt.apart = std::max(0, doubt.apart - 1);
    doubt.last = std::max(0, doubt.last - 1);
  }
}

void LinkDoubts::OnBroken(const std::string& fed, const std::string& feeder) {
  const auto doubled = [](int updates) { return std::clamp(2 * updates, 1, kMostUpdates); };
  // This update counts as the first.
  Doubt& doubt = doubts_[fed];
  doubt.updates = doubled(doubt.updates);
  doubt.apart = doubt.updates + 1;
  if (feeder.empty()) return;
  Doubt& other = doubts_[feeder];
  other.last = std::max(other.last, doubt.apart);
}

void LinkDoubts::OnCarried(const std::string& id) {
  const auto found = doubts_.find(id);
  if (found == doubts_.end() || found->second.apart > 0) return;
  found->second.updates /= 2;
  if (found->second.updates == 0 && found->second.last == 0) doubts_.erase(found);
}

int LinkDoubts::UpdatesLeft(const std::string& id) const {
  const auto found = doubts_.find(id);
  return found == doubts_.end() ? 0 : found->second.apart;
}

bool LinkDoubts::IsLast(const std::string& id) const {
  const auto found = doubts_.find(id);
  return found != doubts_.end() && found->second.last > 0;
}

}  // namespace tandem::trainer
