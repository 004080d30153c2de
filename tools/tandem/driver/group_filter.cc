#include "tools/tandem/driver/group_filter.h"

#include <algorithm>

namespace tandem::driver {

bool Differs(const Group& group, config::v1::FilterMetric metric) {
  const auto value = [metric](const Completion& completion) {
    return metric == config::v1::FILTER_METRIC_ACC ? completion.score : completion.reward;
  };
  if (group.completions.size() <= 1) return true;
  return std::any_of(group.completions.begin(), group.completions.end(),
                     [&](const Completion& completion) {
                       return value(completion) != value(group.completions.front());
                     });
}

}  // namespace tandem::driver
