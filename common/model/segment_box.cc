#include "common/model/segment_box.h"

#include <algorithm>

#include "common/status/status_macros.h"

namespace tandem::model {
namespace {

// A segment as a matrix: rows, and what is left as columns. Only dims 0 and 1 are ever split, and
// dim 1 of matrices alone.
struct Box {
  explicit Box(const Segment& segment) {
    first_row = segment.start[0];
    rows = segment.shape[0];
    for (size_t d = 1; d < segment.shape.size(); ++d) {
      first_column = first_column * segment.global_shape[d] + segment.start[d];
      columns *= segment.shape[d];
      global_columns *= segment.global_shape[d];
    }
  }

  int64_t first_row = 0;
  int64_t rows = 0;
  int64_t first_column = 0;
  int64_t columns = 1;
  int64_t global_columns = 1;
};

}  // namespace

absl::Status ForRunsOfBox(const Segment& segment, int64_t first, int64_t count, BoxRunBody body) {
  if (count <= 0) return absl::OkStatus();
  const Box box(segment);
  if (box.columns == box.global_columns) {
    return body({box.first_row * box.columns + first, first, count});
  }
  const int64_t end = first + count;
  while (first < end) {
    const int64_t row = first / box.columns;
    const int64_t column = first - row * box.columns;
    const int64_t n = std::min(end - first, box.columns - column);
    const int64_t logical = (box.first_row + row) * box.global_columns + box.first_column + column;
    RETURN_IF_ERROR(body({logical, first, n}));
    first += n;
  }
  return absl::OkStatus();
}

absl::Status ForRunsOfTensor(const Segment& segment, int64_t first, int64_t count,
                             BoxRunBody body) {
  const Box box(segment);
  const int64_t end = first + count;
  // Where the box has full rows, all of them are one run.
  const bool full = box.columns == box.global_columns;
  const int64_t width = full ? box.rows * box.columns : box.columns;
  const int64_t num_runs = full ? 1 : box.rows;
  const int64_t start = box.first_row * box.global_columns + box.first_column;
  // The last run that begins at or before `first`, and on from there.
  int64_t run = full || first < start ? 0 : (first - start) / box.global_columns;
  for (; run < num_runs; ++run) {
    const int64_t run_begin = start + run * box.global_columns;
    if (run_begin >= end) break;
    const int64_t begin = std::max(first, run_begin);
    const int64_t stop = std::min(end, run_begin + width);
    if (begin >= stop) continue;
    RETURN_IF_ERROR(body({begin, run * width + begin - run_begin, stop - begin}));
  }
  return absl::OkStatus();
}

}  // namespace tandem::model
