// Maps elements of logical tensors to positions in a rank's flat shard.
//
// A tensor is treated as a matrix: its first dimension, and the product of the others. A rank holds
// a box of that matrix (all of it without tensor parallelism), laid out row-major in its unit's
// flat buffer; sharding gives the rank a contiguous range of that buffer. So a rank's state is a
// list of runs: consecutive elements of a box. Two layouts are related through the elements of the
// logical tensor, so one can be read as the other without further knowledge of mesh or units.
#ifndef TANDEM_COMMON_CHECKPOINT_LAYOUT_H_
#define TANDEM_COMMON_CHECKPOINT_LAYOUT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "common/model/parameter_table.h"
#include "common/model/segment_box.h"

namespace tandem::checkpoint {

using model::Box;
using model::WholeBox;

struct Run {
  std::string tensor;
  std::vector<int64_t> shape;  // of the logical tensor
  Box box;
  int64_t begin = 0;   // first element, in the box's row-major order
  int64_t count = 0;   // elements
  int64_t offset = 0;  // of the first element, in the rank's shard of the unit

  // Columns of the logical tensor as a matrix.
  int64_t columns() const { return WholeBox(shape).width(); }
};

int64_t NumElements(const std::vector<int64_t>& shape);

// Lists what elements [begin, end) of a unit's flat buffer hold, in order; skips padding.
std::vector<Run> RunsOfRange(const model::ParameterTable& table, int unit, int64_t begin,
                             int64_t end);

// Calls `part` for each stretch of elements [first, first + count) of the logical tensor that the
// run holds, in ascending order, with the stretch's start in the tensor, its length, and its start
// in the run.
using Part = absl::FunctionRef<void(int64_t first, int64_t count, int64_t in_run)>;
void Intersect(const Run& run, int64_t first, int64_t count, Part part);

// Does the same for all elements of the run.
inline void ForEachStretch(const Run& run, Part part) {
  Intersect(run, 0, NumElements(run.shape), part);
}

}  // namespace tandem::checkpoint

#endif  // TANDEM_COMMON_CHECKPOINT_LAYOUT_H_
