// Maps between a logical tensor and the box of it that one rank holds. Indices of both are
// row-major; if the box is narrower than the tensor, each of its rows is a separate run.
#ifndef TANDEM_COMMON_MODEL_SEGMENT_BOX_H_
#define TANDEM_COMMON_MODEL_SEGMENT_BOX_H_

#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "common/model/parameter_table.h"
#include "common/model/tensor_parallel.h"

namespace tandem::model {

// A part of a tensor viewed as a matrix: its first dimension, and the product of the others.
struct Box {
  int64_t row_begin = 0;
  int64_t row_end = 0;
  int64_t column_begin = 0;
  int64_t column_end = 0;

  int64_t width() const { return column_end - column_begin; }
  int64_t numel() const { return (row_end - row_begin) * width(); }
  bool operator==(const Box&) const = default;
};

// Returns the box of a whole tensor of this shape.
Box WholeBox(const std::vector<int64_t>& shape);
// Returns the segment's box in its tensor. Tensors of more than two dimensions are split along the
// first.
Box BoxOf(const Segment& segment);

// Elements that are contiguous in both the logical tensor and the box.
struct BoxRun {
  int64_t logical = 0;  // index of the first in the logical tensor
  int64_t local = 0;    // index of the first in the box
  int64_t count = 0;
};
using BoxRunBody = absl::FunctionRef<absl::Status(const BoxRun&)>;

// Calls body, in order, for the runs of the elements in `local` of the box and in `logical` of the
// tensor, which has `columns` columns. Stops at the body's first error.
absl::Status ForRuns(const Box& box, int64_t columns, Range local, Range logical, BoxRunBody body);
absl::Status ForRuns(const Segment& segment, Range local, Range logical, BoxRunBody body);

// Like ForRuns(), for elements [first, first + count) of the box.
absl::Status ForRunsOfBox(const Segment& segment, int64_t first, int64_t count, BoxRunBody body);

// Like ForRuns(), for the box's part of elements [first, first + count) of the logical tensor.
absl::Status ForRunsOfTensor(const Segment& segment, int64_t first, int64_t count, BoxRunBody body);

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_SEGMENT_BOX_H_
