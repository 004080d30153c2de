#include "common/sharding/gather_schedule.h"

#include <algorithm>
#include <utility>

namespace tandem::sharding {

GatherSchedule::GatherSchedule(std::vector<std::vector<int>> units_of_steps,
                               const GatherOptions& options)
    : prefetch_(options.prefetch) {
  std::vector<size_t> last_read;  // by unit
  for (std::vector<int>& units : units_of_steps) {
    for (const int unit : units) {
      last_read.resize(std::max<size_t>(last_read.size(), unit + 1));
      last_read[unit] = steps_.size();
    }
    steps_.push_back({.units = std::move(units)});
  }
  std::vector<bool> held(last_read.size());
  for (size_t s = 0; s < steps_.size(); ++s) {
    const size_t end = WindowEnd(s);
    for (size_t u = 0; u < held.size(); ++u) {
      if (!held[u]) continue;
      const bool stays =
          options.reshard_after_forward ? IsRead(static_cast<int>(u), s, end) : last_read[u] >= s;
      if (stays) continue;
      steps_[s].frees.push_back(static_cast<int>(u));
      held[u] = false;
    }
    for (size_t ahead = s; ahead < end; ++ahead) {
      for (const int unit : steps_[ahead].units) {
        if (held[unit]) continue;
        steps_[s].gathers.push_back(unit);
        held[unit] = true;
      }
    }
  }
}

size_t GatherSchedule::WindowEnd(size_t step) const {
  return std::min(steps_.size(), step + 1 + static_cast<size_t>(prefetch_));
}

bool GatherSchedule::IsRead(int unit, size_t begin, size_t end) const {
  for (size_t s = begin; s < end; ++s) {
    const std::vector<int>& units = steps_[s].units;
    if (std::find(units.begin(), units.end(), unit) != units.end()) return true;
  }
  return false;
}

}  // namespace tandem::sharding
