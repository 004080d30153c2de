#include "common/checkpoint/layout.h"

#include <algorithm>

namespace tandem::checkpoint {

int64_t NumElements(const std::vector<int64_t>& shape) {
  int64_t numel = 1;
  for (const int64_t size : shape) numel *= size;
  return numel;
}

std::vector<Run> RunsOfRange(const model::ParameterTable& table, int unit, int64_t begin,
                             int64_t end) {
  std::vector<Run> runs;
  for (const int index : table.units()[unit].parameters) {
    for (const model::Segment& segment : table.parameter(index).segments) {
      const int64_t first = std::max(begin, segment.offset);
      const int64_t last = std::min(end, segment.offset + segment.numel);
      if (first >= last) continue;
      runs.push_back({segment.name, segment.global_shape, model::BoxOf(segment),
                      first - segment.offset, last - first, first - begin});
    }
  }
  return runs;
}

void Intersect(const Run& run, int64_t first, int64_t count, Part part) {
  model::ForRuns(run.box, run.columns(), {run.begin, run.begin + run.count}, {first, first + count},
                 [&](const model::BoxRun& found) {
                   part(found.logical, found.count, found.local - run.begin);
                   return absl::OkStatus();
                 })
      .IgnoreError();
}

}  // namespace tandem::checkpoint
