// Between a logical tensor and the box of it that one rank holds. Both are counted in row-major
// order; where the box is narrower than the tensor, each of its rows is a run of its own.
#ifndef TANDEM_COMMON_MODEL_SEGMENT_BOX_H_
#define TANDEM_COMMON_MODEL_SEGMENT_BOX_H_

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "common/model/parameter_table.h"

namespace tandem::model {

// Elements that follow one another in the logical tensor and in the box.
struct BoxRun {
  int64_t logical = 0;  // index of the first in the logical tensor
  int64_t local = 0;    // index of the first in the box
  int64_t count = 0;
};
using BoxRunBody = absl::FunctionRef<absl::Status(const BoxRun&)>;

// The runs of elements [first, first + count) of the box, in order. Stops at the body's first
// error.
absl::Status ForRunsOfBox(const Segment& segment, int64_t first, int64_t count, BoxRunBody body);

// The runs of what the box holds of elements [first, first + count) of the logical tensor, in
// order.
absl::Status ForRunsOfTensor(const Segment& segment, int64_t first, int64_t count, BoxRunBody body);

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_SEGMENT_BOX_H_
