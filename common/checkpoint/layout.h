// Where the elements of logical tensors lie within a rank's flat shard.
//
// A tensor is seen as a matrix: its first dimension, and the product of the others. What a rank has
// of it is a box of that matrix (all of it without tensor parallelism), laid out row-major in its
// unit's flat buffer, of which sharding gives the rank a contiguous range. So a rank's state is a
// list of runs: consecutive elements of a box. Two layouts, however made, meet in the elements of
// the logical tensor; nothing else about mesh or units need be known to read one as the other.
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
  int64_t offset = 0;  // of the first within the rank's shard of the unit

  // Columns of the logical tensor.
  int64_t columns() const { return WholeBox(shape).width(); }
};

int64_t NumElements(const std::vector<int64_t>& shape);

// What elements [begin, end) of a unit's flat buffer hold, in order; padding is passed over.
std::vector<Run> RunsOfRange(const model::ParameterTable& table, int unit, int64_t begin,
                             int64_t end);

// Calls `part` for each stretch of elements [first, first + count) of the logical tensor that the
// run holds, in ascending order: where it begins in the tensor, its length, and where it begins in
// the run.
using Part = absl::FunctionRef<void(int64_t first, int64_t count, int64_t in_run)>;
void Intersect(const Run& run, int64_t first, int64_t count, Part part);

// The same for all that the run holds.
inline void ForEachStretch(const Run& run, Part part) {
  Intersect(run, 0, NumElements(run.shape), part);
}

}  // namespace tandem::checkpoint

#endif  // TANDEM_COMMON_CHECKPOINT_LAYOUT_H_
