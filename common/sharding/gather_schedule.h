// GatherSchedule: which units a rank gathers and frees, and when. A pass over the model is a list
// of steps, each with the units that it reads. Entering a step gathers its units and prefetches
// those of the next `prefetch` steps; all others are freed, unless units stay from forward to
// backward. The trainer gathers tensors by it (unit_gatherer.h), the planner counts their bytes.
//
//   const GatherSchedule schedule({{embedding}, {layer_0}, {layer_1}, {head, embedding}}, {});
//   for (size_t s = 0; s < schedule.num_steps(); ++s) {
//     for (const int unit : schedule.step(s).frees) Free(unit);
//     for (const int unit : schedule.step(s).gathers) Gather(unit);
//     ...                                           // computes
//   }
#ifndef TANDEM_COMMON_SHARDING_GATHER_SCHEDULE_H_
#define TANDEM_COMMON_SHARDING_GATHER_SCHEDULE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tandem::sharding {

struct GatherOptions {
  int64_t prefetch = 1;
  // Frees a unit between its forward and its backward; false keeps it while a later step reads it.
  bool reshard_after_forward = true;
};

class GatherSchedule {
 public:
  struct Step {
    std::vector<int> units;  // that it reads
    // Units to free before any gather starts: a gather then takes a freed unit's buffer.
    std::vector<int> frees;
    std::vector<int> gathers;  // those that are not held yet: the step's own, then prefetched ones
  };

  GatherSchedule() = default;  // without steps
  // No unit is held before the first step. Whoever follows the schedule frees what is still held
  // after the last one.
  GatherSchedule(std::vector<std::vector<int>> units_of_steps, const GatherOptions& options);

  size_t num_steps() const { return steps_.size(); }
  const Step& step(size_t index) const { return steps_[index]; }
  // The step's window is [step, WindowEnd(step)): the step itself and the prefetched ones.
  size_t WindowEnd(size_t step) const;
  // Whether a step in [begin, end) reads the unit.
  bool IsRead(int unit, size_t begin, size_t end) const;

 private:
  std::vector<Step> steps_;
  int64_t prefetch_ = 1;
};

}  // namespace tandem::sharding

#endif  // TANDEM_COMMON_SHARDING_GATHER_SCHEDULE_H_
