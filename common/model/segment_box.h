// Between a logical tensor and the box of it that one rank holds. Both are counted in row-major
// order; where the box is narrower than the tensor, each of its rows is a run of its own.
#ifndef TANDEM_COMMON_MODEL_SEGMENT_BOX_H_
#define TANDEM_COMMON_MODEL_SEGMENT_BOX_H_

#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "common/model/parameter_table.h"
#include "common/model/tensor_parallel.h"

namespace tandem::model {

// A part of a tensor seen as a matrix: its first dimension, and the product of the others.
struct Box {
  int64_t row_begin = 0;
  int64_t row_end = 0;
  int64_t column_begin = 0;
  int64_t column_end = 0;

  int64_t width() const { return column_end - column_begin; }
  int64_t numel() const { return (row_end - row_begin) * width(); }
  bool operator==(const Box&) const = default;
};

// Of a tensor of this shape, all.
Box WholeBox(const std::vector<int64_t>& shape);
// What the segment is of its tensor. Tensors of more than two dimensions are split along the first.
Box BoxOf(const Segment& segment);

// Elements that follow one another in the logical tensor and in the box.
struct BoxRun {
  int64_t logical = 0;  // index of the first in the logical tensor
  int64_t local = 0;    // index of the first in the box
  int64_t count = 0;
};
using BoxRunBody = absl::FunctionRef<absl::Status(const BoxRun&)>;

// The runs of the elements that are in `local` of the box and in `logical` of the tensor, which has
// so many `columns`, in order. Stops at the body's first error.
absl::Status ForRuns(const Box& box, int64_t columns, Range local, Range logical, BoxRunBody body);
absl::Status ForRuns(const Segment& segment, Range local, Range logical, BoxRunBody body);

// The same of elements [first, first + count) of the box.
absl::Status ForRunsOfBox(const Segment& segment, int64_t first, int64_t count, BoxRunBody body);

// The same of what the box holds of elements [first, first + count) of the logical tensor.
absl::Status ForRunsOfTensor(const Segment& segment, int64_t first, int64_t count, BoxRunBody body);

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_SEGMENT_BOX_H_
