#include "tools/tandem/driver/group_filter.h"

#include <algorithm>

namespace tandem::driver {

bool Differs(const Group& group, config::v1::FilterMetric metric,
             config::v1::AdvEstimator estimator) {
  const auto value = [metric](const Completion& completion) {
    return metric == config::v1::FILTER_METRIC_ACC ? completion.score : completion.reward;
  };
  const bool by_part = estimator == config::v1::ADV_ESTIMATOR_GDPO;
  if (group.completions.size() <= 1) return true;
  const Completion& first = group.completions.front();
  return std::any_of(group.completions.begin(), group.completions.end(),
                     [&](const Completion& completion) {
                       return value(completion) != value(first) ||
                              (by_part && completion.part_scores != first.part_scores);
                     });
}

}  // namespace tandem::driver
